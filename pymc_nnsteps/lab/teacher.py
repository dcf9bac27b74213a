"""Teacher and student: data from a model's own prior, with a known posterior draw; the score.

Whoever draws parameters ``w*``, latent layers ``Z*`` and targets ``y*`` jointly from a model has
with ``(w*, Z*)`` a draw from the posterior given ``y*``. A chain that starts there is in
equilibrium from its first sweep on; one that starts elsewhere has arrived, at the earliest, when
it agrees with the first (:mod:`.thermalization`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.initial_point import PointType, make_initial_point_fn
from pymc.logprob.basic import conditional_logp
from pymc.pytensorf import compile
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_integer, positive_number
from pymc_nnsteps.compile.compiling import c_by_default, drawing, without_blas_notice
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.diagnostics.draws import Tabulated, at_draws, opened, require_finite, tagged
from pymc_nnsteps.graphs.initial_values import at_support_points, initial_value
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.shapes import refuse_random_data
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.prediction.new_inputs import function_expression, function_values
from pymc_nnsteps.prediction.posterior import SAMPLES, as_tree
from pymc_nnsteps.steps.step import Vars, chosen
from pymc_nnsteps.steps.target import dependent_factors, log_density


@dataclass(frozen=True, repr=False)
class Score(Tabulated):
    """Scores of several variables, printed as a table.

    Attributes
    ----------
    draws : Dataset, dims (chain, draw)
        For each variable the mean of its score over its entries.
    dataset : Dataset, dims (statistic,)
        For each variable "mean" over all draws, its Monte Carlo error "mcse", and their ratio "z".
    """

    draws: xr.Dataset
    dataset: xr.Dataset

    formats: ClassVar[Mapping[str, str]] = {"mean": "{:.3g}", "mcse": "{:.2g}", "z": "{:.1f}"}

    @property
    @override
    def table(self) -> pd.DataFrame:
        """One row per variable."""
        columns = self.dataset["statistic"].values
        rows = {name: values.values for name, values in self.dataset.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


@one_thread
def score_statistic(
    idata: Any, vars: Vars = None, *, model: pm.Model | None = None, scale: float = 1.0
) -> Score:
    r"""Test whether draws are from the posterior, for which the mean of the score is zero.

    For a variable with values :math:`v_1, \dots, v_k` the statistic of a draw is

    .. math:: U = \frac{1}{k} \sum_i \frac{\partial \log p(v, \text{others}, \text{data})}
        {\partial v_i},

    whose mean under the posterior is zero. A chain that has not converged, or a sampler of another
    distribution, usually has another mean. However, the mean is also nearly zero for draws in only
    one of several modes, and for draws about the mean of a Gaussian with too much or too little
    spread.

    Where the model transforms a variable, :math:`v` is the transformed, unbounded value that NUTS
    samples, and :math:`p` its density, Jacobian included. On the variable's own scale the mean
    would not be zero wherever the density does not vanish at a bound: for a half-normal it is
    :math:`-p(0)`. For the same reason a bounded variable whose transform was removed, and one in
    which the density jumps (utilities under a threshold), need not have mean zero.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    vars : variable, name, or list of these, optional
        Free variables; all continuous ones by default. Variables on which their score depends must
        be stored as well: parents, children and what else these depend on.
    model : pm.Model, optional
        The model that was sampled; taken from the context if not given.
    scale : float
        Factor of the score. The source multiplies it by the noise variance of an
        intermediate-noise network.

    Returns
    -------
    Score
        Prints as a table with one row per variable: the mean, its Monte Carlo error (by ArviZ) and
        their ratio ``z``, which is about standard normal for a chain in equilibrium with hundreds
        of effective draws. ``.draws`` has the statistic of each draw, ``.dataset`` the numbers of
        the table.

    Raises
    ------
    ValueError
        If a variable is not free and continuous, if the trace lacks a required variable or has
        fewer than four draws, if a score is not finite, or if the log density is random.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*
    (arXiv 2306.02729), Appendix A.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> score = nns.lab.score_statistic(idata, "W1", model=model, scale=0.1)
    >>> score.draws["W1"].sizes
    Frozen({'chain': 2, 'draw': 50})
    >>> bool(abs(score.table.loc["W1", "z"]) < 4)
    True
    """
    from arviz_stats import sampling_diagnostics as arviz

    model, posterior = opened(idata, model, n_chains=1)
    means = score_means(model, vars, scale)
    statistics = at_draws(model, posterior, list(means.values()))
    draws = xr.Dataset(
        {name: (SAMPLES, u) for name, u in zip(means, statistics, strict=True)},
        coords={dim: posterior[dim] for dim in SAMPLES},
    )
    require_finite(draws)
    mean, error = draws.mean(SAMPLES), arviz.mcse(draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = mean / error
    return Score(draws, tagged({"mean": mean, "mcse": error, "z": z}))


def score_means(model: pm.Model, vars: Vars, scale: float) -> dict[str, TensorVariable]:
    """Score of each variable, its mean over entries times ``scale``, given value variables."""
    scale = positive_number("scale", scale)
    discrete = model.discrete_value_vars
    if vars is None:
        rvs = [rv for rv in model.free_RVs if model.rvs_to_values[rv] not in discrete]
    else:
        rvs = chosen(model, vars)
    values = [model.rvs_to_values[rv] for rv in rvs]
    for rv, value in zip(rvs, values, strict=True):
        if value in discrete:
            raise ValueError(
                f"vars must be continuous; {describe(rv)} is discrete and has no score."
            )
    refuse_random_data(model)
    log_p = log_density(model, [*rvs, *dependent_factors(model, rvs)])
    gradients: Any = pt.grad(log_p, values, disconnected_inputs="ignore")
    return {
        rv.name: scale * pt.mean(pt.as_tensor(gradient, allow_xtensor_conversion=True))
        for rv, gradient in zip(rvs, gradients, strict=True)
    }


Values = dict[str, NDArray[Any]]

SAME_DENSITY = 1e-6
"""Relative difference between two log densities of one model that rounding may make."""


@dataclass(frozen=True, eq=False)
class TeacherStudent:
    """The model of a student, with the parameters and targets of its teacher.

    Attributes
    ----------
    model : pm.Model
        Model of the student, with the teacher's targets as data.
    targets : ndarray, or dict of ndarray
        Draws of the observed variable, or of each observed variable by name.
    teacher : Dataset, dims (chain, draw, ...)
        The known posterior draw: free variables, including latent layers, and deterministics. It
        can be used wherever a posterior can.
    starts : dict of str to dict
        Points at which chains start, as ``initvals`` of step methods: values of the transformed
        variables. "informed" is the teacher's state; "zero" has all variables at PyMC's support
        point (zero weights); "prior" ("prior 1", "prior 2", ... if there are several) is a draw
        from the prior whose latent layers follow from its weights.
    """

    model: pm.Model
    targets: NDArray[Any] | Values
    teacher: xr.Dataset
    starts: dict[str, PointType]

    def test_error(
        self, X: ArrayLike | pd.DataFrame, *, inputs: str | None = None
    ) -> TensorVariable:
        """Noise-free test error: mean squared difference between outputs of student and teacher.

        This scalar, and those of the other methods, are test functions of
        :func:`~pymc_nnsteps.lab.thermalize`, in terms of the model's variables.

        Parameters
        ----------
        X : array_like or table, shape (n_obs, n_features)
        inputs
            As for :func:`~pymc_nnsteps.predict`.
        """
        output = function_expression(X, self.model, inputs)
        known = function_values(self.teacher, X, self.model, inputs).values[0, 0]
        return pt.mean(pt.sqr(output.reshape(known.shape) - known))

    def score(self, var: TensorVariable | str, *, scale: float = 1.0) -> TensorVariable:
        """Mean gradient of the log density, as in :func:`~pymc_nnsteps.lab.score_statistic`.

        Parameters
        ----------
        var : variable or name
            A continuous free variable.
        scale : float
        """
        [mean] = score_means(self.model, var, scale).values()
        return mean

    def log_likelihood(self) -> TensorVariable:
        """Log density of the targets given the free variables."""
        return log_density(self.model, self.model.observed_RVs)


@one_thread
def teacher_student(
    build: Callable[[Any, Any], pm.Model],
    X: ArrayLike | pd.DataFrame,
    *,
    targets: Any = None,
    n_prior: int = 1,
    random_seed: int | None = None,
) -> TeacherStudent:
    """Draw a teacher and its targets from a model's prior, and build the model of the student.

    Parameters
    ----------
    build : callable
        ``build(X, targets)`` returns a model in which the targets are observed as they are. Its
        priors must not depend on the targets: pass the hyperparameters that a builder would derive
        from the data.
    X : array_like or table
        Inputs, passed on to ``build``.
    targets : optional
        Placeholder for the targets, of their shape and type; labels must include all classes. With
        several observed variables, a mapping from names to these. By default, one standard normal
        number for each row of ``X``. The values do not matter.
    n_prior : int
        Number of starts drawn from the prior.
    random_seed : int, optional

    Returns
    -------
    TeacherStudent
        With ``.model``, ``.targets``, ``.teacher`` and ``.starts``, and test functions for
        :func:`~pymc_nnsteps.lab.thermalize`: ``.test_error(X)``, ``.score(var)``,
        ``.log_likelihood()``.

    Raises
    ------
    ValueError
        If data cannot be drawn (nothing is observed, there are potentials, or the log density is
        random), if ``build`` returns other variables or densities for other targets, or if a start
        has no density.

    Notes
    -----
    Where a support point or a draw from the prior contradicts the targets, as for the utilities of
    a probit model, variables for which the model has its own initial values start at these.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*
    (arXiv 2306.02729), Section II.

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> rng = np.random.default_rng(0)
    >>> def build(X, y):
    ...     return nns.intermediate_noise_mlp(X, y, hidden=(3,), noise=0.1)
    >>> lab = nns.lab.teacher_student(build, rng.normal(size=(30, 2)), random_seed=1)
    >>> list(lab.starts)
    ['informed', 'zero', 'prior']
    >>> lab.starts["informed"]["Z2"].shape
    (30, 3)
    >>> nns.predict(lab.teacher, np.zeros((5, 2)), model=lab.model).sizes
    Frozen({'chain': 1, 'draw': 1, 'obs': 5, 'output': 1})
    """
    if not callable(build):
        raise _no_builder(f"got {type(build).__name__}")
    n_prior = positive_integer("n_prior", n_prior)
    rng = np.random.default_rng(random_seed)
    if targets is None:
        targets = rng.normal(size=len(np.asarray(X)))
    template = build(X, targets)
    if not isinstance(template, pm.Model):
        raise _no_builder(f"it returned {type(template).__name__}")
    _require_drawable(template)
    drawn = _joint_draw(template, _seed(rng))
    observed = {rv.name: drawn[rv.name] for rv in template.observed_RVs}
    several = isinstance(targets, Mapping)
    if not several and len(observed) > 1:
        raise ValueError(
            f"build observes {', '.join(observed)}; pass targets as a mapping of these names to "
            "stand-ins, and take such a mapping in build."
        )
    new_targets: Any = observed if several else next(iter(observed.values()))
    model = build(X, new_targets)
    _require_same(template, model, drawn)
    parameters = {rv.name: drawn[rv.name] for rv in model.free_RVs}
    names = ["prior"] if n_prior == 1 else [f"prior {i + 1}" for i in range(n_prior)]
    starts = {
        "informed": _point(model, parameters, 0),
        "zero": _start(model, "support_point", _seed(rng)),
    } | {name: _start(model, "prior", _seed(rng)) for name in names}
    given = {rv: pt.constant(drawn[rv.name].astype(rv.dtype)) for rv in model.free_RVs}
    computed = zip(
        model.deterministics, _evaluated(substitute(model.deterministics, given)), strict=True
    )
    known = parameters | {str(variable.name): value for variable, value in computed}
    posterior = {name: np.asarray(value)[None, None] for name, value in known.items()}
    teacher = as_tree(model, {"posterior": posterior})["posterior"].to_dataset()
    return TeacherStudent(model, new_targets, teacher, starts)


def _no_builder(found: str) -> ValueError:
    return ValueError(
        "build must be a function of inputs and targets that returns a model, such as "
        f"lambda X, y: nns.hierarchical_mlp(X, y); {found}."
    )


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _require_drawable(model: pm.Model) -> None:
    """Check that a model's data can be drawn."""
    if not model.observed_RVs or not model.free_RVs:
        raise ValueError("build must return a model with free and with observed variables.")
    if model.potentials:
        raise ValueError(
            f"{model.potentials[0].name} is a pm.Potential, from which no data can be drawn; write "
            "it as a distribution of an observed variable."
        )
    refuse_random_data(model)


def _joint_draw(model: pm.Model, seed: int) -> Values:
    """Values of all variables, each on its own scale, from their joint law."""
    rvs = model.basic_RVs
    with without_blas_notice():
        draw = compile([], rvs, random_seed=seed, **drawing(c_by_default()))
    return {rv.name: np.asarray(value) for rv, value in zip(rvs, draw(), strict=True)}


def _require_same(template: pm.Model, model: pm.Model, drawn: Values) -> None:
    """Check that a model of other targets differs in nothing but what it observes."""
    names, others = ({rv.name for rv in m.basic_RVs} for m in (template, model))
    if names != others:
        raise ValueError(
            "build must return the same variables whatever the targets; for the stand-in these "
            f"are {', '.join(sorted(names))}, for the teacher's {', '.join(sorted(others))}."
        )
    for rv in model.observed_RVs:
        values = model.rvs_to_values[rv].eval()
        if not np.array_equal(np.asarray(values, drawn[rv.name].dtype), drawn[rv.name]):
            raise ValueError(
                f"build must observe the targets as they are; {rv.name} is observed with other "
                "values: standardise data before you call teacher_student."
            )
    expected, found = (_log_joint_density(m, drawn) for m in (template, model))
    if not abs(expected - found) <= SAME_DENSITY * abs(expected):
        raise ValueError(
            "build must return the same priors whatever the targets; the log density of the "
            f"teacher's state is {expected:.6g} in the model of the stand-in and {found:.6g} in "
            "that of the teacher's targets: set what is taken from the data, such as scales."
        )


def _log_joint_density(model: pm.Model, drawn: Values) -> float:
    """Values of all variables on their own scale, including observed ones."""
    values: dict[Any, Any] = {rv: rv.type() for rv in model.basic_RVs}
    terms = conditional_logp(values, warn_rvs=False)
    given = {value: pt.constant(drawn[rv.name].astype(rv.dtype)) for rv, value in values.items()}
    total = pt.add(pt.constant(0.0), *(pt.sum(term, dtype="float64") for term in terms.values()))
    return float(_evaluated(substitute([total], given))[0])


def _evaluated(expressions: list[TensorVariable]) -> list[NDArray[Any]]:
    with without_blas_notice():
        values: list[NDArray[Any]] = pytensor.function([], expressions, mode="FAST_COMPILE")()
    return values


def _start(model: pm.Model, strategy: str, seed: int) -> PointType:
    """A point from PyMC's initial values of one kind, with what must agree with the targets."""
    own = {rv: initial_value(rv) for rv in model.free_RVs}
    own |= {rv: value for rv, value in model.rvs_to_initial_values.items() if value is not None}
    kept = {rv for rv, value in own.items() if value is not None and not isinstance(value, str)}
    for left in (set(), kept):
        overrides = {rv: strategy for rv in model.free_RVs if rv not in left}
        with at_support_points(overrides):
            point = _point(model, overrides, seed)
        values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        given = {value: pt.constant(point[value.name]) for value in values}
        [log_p] = _evaluated(substitute([log_density(model, model.basic_RVs)], given))
        if np.isfinite(log_p):
            return point
    raise ValueError(
        f"The {strategy.replace('_', ' ')} of the model has density zero given the teacher's "
        "targets; pass initval= to the variables that contradict these."
    )


def _point(model: pm.Model, overrides: Mapping[Any, Any], seed: int) -> PointType:
    return make_initial_point_fn(model=model, overrides=dict(overrides))(seed)
