"""Reading a bow-tie network, with its hyperparameters and data, from the graph of its model.

Nothing is taken from the builder: a network whose hyperparameters were exchanged, or that was
written by hand in the same operations, is read as it stands. Every part of the model is accounted
for; what the variational laws do not fit is declined with the reason. Then differences between log
densities at random points have to be the same, by what was read and by PyMC. Where they are not, a
part of the model was misread, such as a variance that is no product, and nothing is fitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor.random.basic import InvGammaRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import POSITIVE, describe, has_law, law_as_stated, prior_kind
from pymc_nnsteps.graphs.search import depends_on, parameters, stated_in
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.scales import PRIORS
from pymc_nnsteps.network.layers import DenseLayer, dense_layers, normal_of
from pymc_nnsteps.variational.factors import GIG, LayerPrior, NetworkPrior

Numbers = NDArray[np.float64]
Variables = dict[str, TensorVariable]


@dataclass(frozen=True)
class Reading:
    """A network and its data."""

    network: NetworkPrior
    # Names of the variables of each layer by their roles: W, b and eta_sq, and where it has them
    # tau, psi, gamma and a.
    names: tuple[Mapping[str, str], ...]
    inputs: Numbers  # shape (n_obs, n_features)
    targets: Numbers  # shape (n_obs, n_outputs)
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, tuple[Any, ...]]
    input_dims: tuple[str, ...]  # names of the dimensions of the inputs


def read_model(model: pm.Model) -> Reading:
    """Read a bow-tie network."""
    for name, _, what in (rv.name.rpartition("_") for rv in model.free_RVs):
        if what in ("unobserved", "missing") and f"{name}_observed" in model.named_vars:
            raise NotConjugate(
                f"{name} has missing entries, which fit does not impute: leave out the rows with "
                "NaN, or sample the posterior with pm.sample"
            )
    if len(model.observed_RVs) != 1 or model.potentials:
        raise NotConjugate(
            "fit needs a model with one observed variable and without potentials; it has "
            f"{len(model.observed_RVs)} and {len(model.potentials)}"
        )
    with declined_as("fit takes networks like those of nns.bow_tie(marginalize_gates=False)"):
        return _ModelReader(model).read()


@dataclass(frozen=True)
class _ModelReader:
    """The readers of a model's parts."""

    model: pm.Model

    def read(self) -> Reading:
        [y] = self.model.observed_RVs
        chain = dense_layers(self.model, y)
        read = [self.layer(dense) for dense in chain]
        temperatures = {self.temperature(dense) for dense in chain[:-1]}
        self.require_all([rv for _, variables in read for rv in variables.values()])
        if len(temperatures) > 1:
            raise NotConjugate(f"gates have several temperatures, {sorted(temperatures)}")
        temperature = temperatures.pop() if temperatures else 1.0
        x = chain[0].inputs
        targets = self.number(self.model.rvs_to_values[y], describe(y))
        dims = {
            rv.name: tuple(self.model.named_vars_to_dims.get(rv.name) or ())
            for rv in self.model.free_RVs
        }
        coords = {dim: labels for dim, labels in self.model.coords.items() if labels is not None}
        return Reading(
            NetworkPrior(temperature, tuple(prior for prior, _ in read)),
            tuple({role: str(rv.name) for role, rv in found.items()} for _, found in read),
            self.number(x, describe(x)),
            targets.reshape(len(targets), -1),
            dims,
            coords,
            tuple(self.model.named_vars_to_dims.get(x.name) or ("obs", "feature")),
        )

    def layer(self, dense: DenseLayer) -> tuple[LayerPrior, Variables]:
        """Prior of a layer, and its variables by their roles."""
        W, b = dense.weights, dense.bias
        eta_sq = self.noise(dense.post_activation, dense.sd)
        tau, psi, weight_var = self.weights(W)
        units, fan_in = W.type.shape
        noise = self.law(eta_sq, (units,))
        sigma = self.scale_about_zero(b, "biases")
        bias_sd = self.number(sigma, f"the standard deviation of {describe(b)}")
        prior = LayerPrior(
            np.array(np.broadcast_to(bias_sd**2, b.type.shape), dtype=float),
            np.broadcast_to(-noise.nu, units).astype(float),
            np.broadcast_to(noise.delta2 / 2, units).astype(float),
            np.array(np.broadcast_to(weight_var, (units, fan_in)), dtype=float),
            None if tau is None else self.law(tau, ()),
            None if psi is None else self.law(psi, (units, fan_in)),
        )
        found = {"W": W, "b": b, "eta_sq": eta_sq, "tau": tau, "psi": psi, "gamma": dense.gates}
        if dense.gates is not None:
            found["a"] = dense.post_activation
        return prior, {role: rv for role, rv in found.items() if rv is not None}

    def temperature(self, dense: DenseLayer) -> float:
        """Temperature of the gates of a hidden layer."""
        if dense.gates is None or dense.temperature is None:
            return 1.0
        what = f"the temperature of {describe(dense.gates)}"
        value = self.number(dense.temperature, what)
        if value.size != 1 or not value.item() > 0:
            raise NotConjugate(f"{what} is not a single positive number")
        return float(value.item())

    def noise(self, y: TensorVariable, sigma: TensorVariable) -> TensorVariable:
        """The variable that is the noise variance of each unit."""
        factors, constant = self.variance(sigma)
        if len(factors) != 1 or factors[0].ndim != 1 or np.any(constant != 1):
            raise NotConjugate(
                f"the standard deviation of {describe(y)} is not recognised as the square root of "
                "one free variable with an entry for each unit"
            )
        if not has_law(self.model, factors[0], InvGammaRV, support=POSITIVE):
            stated = law_as_stated(self.model, factors[0])
            raise NotConjugate(
                f"{describe(factors[0])} is {stated}; noise variances must be InverseGamma"
            )
        return factors[0]

    def weights(
        self, W: TensorVariable
    ) -> tuple[TensorVariable | None, TensorVariable | None, Numbers]:
        """Global and local scales of weights, and the known factor of their variance."""
        factors, constant = self.variance(self.scale_about_zero(W, "weights"))
        if not factors:
            return None, None, constant
        factors = sorted(factors, key=lambda rv: rv.ndim)
        if [rv.ndim for rv in factors] != [0, 2] or factors[1].type.shape != W.type.shape:
            raise NotConjugate(
                f"the variance of {describe(W)} is the product of "
                f"{', '.join(map(describe, factors))}; fit supports one scale for all weights of "
                "the layer times one for each, or a known variance"
            )
        return factors[0], factors[1], constant

    def scale_about_zero(self, rv: TensorVariable, role: str) -> TensorVariable:
        """Standard deviation of a normal variable of mean zero."""
        mu, sigma = normal_of(self.model, rv, role)
        if np.any(self.number(mu, f"the mean of {describe(rv)}") != 0):
            raise NotConjugate(f"the mean of {describe(rv)} is not zero")
        return sigma

    def variance(self, sigma: TensorVariable) -> tuple[list[TensorVariable], Numbers]:
        """Free variables whose product with a constant is the square of ``sigma``."""
        free = self.model.free_RVs
        found = [rv for rv in free if rv in stated_in([sigma], free)]
        if any(None in rv.type.shape for rv in found):
            raise NotConjugate(f"{', '.join(map(describe, found))} have shapes that are not known")
        ones = {rv: pt.ones(rv.type.shape, dtype=rv.dtype) for rv in found}
        [constant] = substitute([sigma], ones)
        return found, self.number(constant, "a standard deviation") ** 2

    def law(self, rv: TensorVariable, shape: tuple[int | None, ...]) -> GIG:
        """The generalised inverse Gaussian prior of a scale."""
        read = PRIORS.get(prior_kind(self.model, rv, POSITIVE))
        if read is None or rv.type.shape != shape:
            raise NotConjugate(
                f"{describe(rv)} is {law_as_stated(self.model, rv)} of shape {rv.type.shape}; a "
                f"scale must be gamma, inverse gamma or generalised inverse Gaussian, of shape "
                f"{shape}"
            )
        exponents = read(*parameters(rv))
        nu, delta2, lambda2 = (
            self.number(part, f"a parameter of {describe(rv)}")
            for part in (exponents.nu, exponents.delta2, exponents.lambda2)
        )
        if np.any(nu != nu.flat[0]):
            raise NotConjugate(f"the entries of {describe(rv)} have priors of different orders")
        for part in (delta2, lambda2):
            if np.any(part == 0) and not np.all(part == 0):
                raise NotConjugate(
                    f"the entries of {describe(rv)} have priors of different families"
                )
        if has_law(self.model, rv, InvGammaRV, support=POSITIVE) and rv.ndim == 1:
            return GIG(float(nu.flat[0]), delta2, lambda2)
        return GIG(float(nu.flat[0]), _squeezed(delta2), _squeezed(lambda2))

    def number(self, expression: Variable, what: str) -> Numbers:
        """Value of an expression that no random variable enters."""
        if depends_on(expression, set(self.model.basic_RVs)):
            raise NotConjugate(f"{what} depends on random variables; fit needs a constant")
        value = pt.as_tensor(expression).eval(mode=ONCE)
        return np.asarray(value, dtype=np.float64)

    def require_all(self, found: list[TensorVariable]) -> None:
        """Check that each free variable has one part."""
        others = [rv for rv in self.model.free_RVs if rv not in found]
        twice = [rv for rv in self.model.free_RVs if found.count(rv) > 1]
        if others or twice:
            which = ", ".join(map(describe, others or twice))
            how = "no part" if others else "several parts"
            raise NotConjugate(f"{which} of the model has {how} in the bow-tie network of fit")


def _squeezed(value: Numbers) -> Numbers:
    """One number, where all are the same."""
    return np.asarray(value.flat[0]) if np.all(value == value.flat[0]) else value


Point = Mapping[str, Numbers]

STABLE = Mode("py", RewriteDatabaseQuery(include=["fast_compile", "stabilize"]))

N_POINTS = 3


def require_density(model: pm.Model, reading: Reading) -> None:
    """Check what was read."""
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    natural = natural_values(model)
    evaluate = pytensor.function(
        values,
        [*model.logp(jacobian=False, sum=False), *(natural[rv] for rv in model.free_RVs)],
        mode=STABLE,
        on_unused_input="ignore",
    )
    rng = np.random.default_rng(0)
    initial = model.initial_point(0)
    scales = {names.get(role) for names in reading.names for role in ("tau", "psi", "eta_sq")}
    stated, read = [], []
    for _ in range(N_POINTS):
        at = (_random(rng, initial[v.name], positive=v.name in scales) for v in values)
        found = evaluate(*at)
        n_terms = len(found) - len(values)
        log_densities, drawn = found[:n_terms], found[n_terms:]
        point = {rv.name: np.asarray(x, float) for rv, x in zip(model.free_RVs, drawn, strict=True)}
        stated.append(float(sum(np.sum(each) for each in log_densities)))
        read.append(_log_density(reading, point))
    tolerance = np.sqrt(np.finfo(pytensor.config.floatX).eps) * max(map(abs, [*stated, *read]))
    differences = np.diff(stated) - np.diff(read)
    if not np.all(np.abs(differences) <= tolerance):
        raise NotConjugate(
            "the log density of the model differs from that of the bow-tie network that fit "
            f"recognises in it: between two points they differ by {np.diff(stated)[0]:g} and "
            f"{np.diff(read)[0]:g}; sample its posterior with pm.sample"
        )


def _random(
    rng: np.random.Generator, like: NDArray[np.generic], *, positive: bool
) -> NDArray[np.generic]:
    """A value for a variable: 0 and 1 for a gate, positive for a scale without a transform."""
    if np.issubdtype(like.dtype, np.floating):
        value = rng.normal(size=like.shape).astype(like.dtype)
        return np.abs(value) if positive else value
    return rng.integers(0, 2, like.shape).astype(like.dtype)


def _log_density(reading: Reading, point: Point) -> float:
    """Log density of all variables and the targets, up to a constant."""
    x, total = reading.inputs, 0.0
    for prior, names in zip(reading.network.layers, reading.names, strict=True):
        at = {role: point[name] for role, name in names.items()}
        variance = prior.weight_var
        for law, role in ((prior.tau, "tau"), (prior.psi, "psi")):
            if law is not None:
                variance = variance * at[role]
                total += _gig(at[role], law)
        total += _normal(at["W"], 0.0, variance) + _normal(at["b"], 0.0, prior.bias_var)
        total += _gig(at["eta_sq"], GIG(0.0, 2 * prior.beta, np.zeros(())))
        total -= float(np.sum(prior.alpha * np.log(at["eta_sq"])))
        z = x @ at["W"].T + at["b"]
        x, mean = reading.targets, z
        if "gamma" in at:
            gates, x, logit = at["gamma"], at["a"], z / reading.network.temperature
            total += float(np.sum(gates * logit - np.logaddexp(0, logit)))
            mean = gates * z
        total += _normal(x, mean, at["eta_sq"])
    return total


def _normal(x: Numbers, mean: Numbers | float, variance: Numbers) -> float:
    each = -0.5 * (x - mean) ** 2 / variance - 0.5 * np.log(variance)
    return float(np.sum(np.broadcast_to(each, np.shape(x))))


def _gig(x: Numbers, law: GIG) -> float:
    return float(np.sum((law.nu - 1) * np.log(x) - (law.delta2 / x + law.lambda2 * x) / 2))
