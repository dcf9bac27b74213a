"""Forward pass of a network for each row of its inputs, with latent layers at their means or drawn.

Latent layers are the free variables with one row for each row of the inputs. :func:`forward_pass`
puts their means; :func:`noisy_pass` puts the layers themselves, as functions of noise: normal ones
as mean and standard normal noise, gates and mixtures as comparisons of a uniform level.

That each row depends on its own row of the inputs alone is established from the graph
(:mod:`~pymc_nnsteps.graphs.rows`): of the output, or of the parameters of the law of what is
observed (:mod:`.laws`), or of its log density. Otherwise there is no prediction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import DTypeLike, NDArray
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.centred import about_mean_of_first, differences
from pymc_nnsteps.graphs.errors import declined_as, known_or_none
from pymc_nnsteps.graphs.known import describe, distribution, has_law
from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows, require_aligned
from pymc_nnsteps.graphs.search import children, depends_on, parameters
from pymc_nnsteps.graphs.shapes import length_of, shapes_of
from pymc_nnsteps.laws.piecewise import match_gates
from pymc_nnsteps.network.layers import Gates, Layer
from pymc_nnsteps.network.network import Network, network_of, responses_of
from pymc_nnsteps.prediction.gaps import apart, some_rows, values_of_observed, with_gaps, without
from pymc_nnsteps.prediction.imputation import imputation_of, imputations_of
from pymc_nnsteps.prediction.laws import ELSEWHERE, Law, Other, read_law
from pymc_nnsteps.prediction.row_data import (
    Known,
    RowData,
    arrays_in,
    arrays_whose_rows_enter,
    of_any_length,
    own_rows,
    with_rows,
)

Lengths = Mapping[TensorVariable, int]
"""Numbers of entries of variables that have others than in the model."""

NO_LENGTHS: Lengths = {}


@dataclass(frozen=True)
class ForwardPass:
    """What a network computes of its inputs and of what the chain has stored."""

    # The output alone, of shape (n_obs,) or (n_obs, n_outputs).
    parameters: tuple[TensorVariable, ...]
    rows: RowData  # what stands for the container of the inputs, and for data that go with its rows
    # What stands for each stored variable of the model that the parameters depend on.
    weights: dict[TensorVariable, TensorVariable]
    # shape (n_obs, ...): standard normal noise, here of missing inputs.
    normal: tuple[TensorVariable, ...]


@dataclass(frozen=True)
class NoisyPass(ForwardPass):
    """The law of the targets of each row, given the noise of missing inputs and of layers.

    Its parameters are mean and standard deviation, with rows first; of other laws the density
    alone.
    """

    y: TensorVariable  # the observed variable
    value: TensorVariable  # its data, NaN where missing, (n_obs,) or (n_obs, n_outputs)
    law: Law
    uniform: tuple[TensorVariable, ...]  # noise between 0 and 1, shape (n_obs, ...)
    # Normal noise that the law's mean is affine in and its standard deviation does not depend on.
    linear: tuple[TensorVariable, ...]
    numbers: NDArray[np.intp] | None  # of the rows that are observed, if these are not all
    # That of rows without gaps in their inputs, if the others have noise of missing inputs.
    of_complete_rows: "NoisyPass | None"
    known: Known  # what stands for variables of the model
    # What is passed on in place of others: latent layers as functions of the layers before and of
    # noise, and all rows for some.
    made: dict[Any, TensorVariable]

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """Shape of what is observed of a row."""
        return tuple(int(length) for length in self.value.shape.eval(mode="FAST_COMPILE")[1:])

    def at_rows(self, expression: TensorVariable) -> TensorVariable:
        """An expression, of random variables too, at rows that are known to stay apart."""
        found: TensorVariable
        found, _ = follow_rows(expression, self.known, self.made.get, lambda *_: Rows(0))
        return found


def forward_pass(
    model: pm.Model,
    container: TensorSharedVariable,
    output_name: str | None = None,
    dtype: DTypeLike | None = None,
    lengths: Lengths = NO_LENGTHS,
    gaps: bool = False,
) -> ForwardPass:
    """Mean of the observed variable, or a ``pm.Deterministic``, with latent layers at means."""
    model, completed, noise = read_inputs(model, container, gaps)
    outputs = _outputs(model, container)
    is_named = output_name is not None or (len(outputs) == 1 and not responses_of(model, container))
    network = network_of(model, container, any_response=is_named)
    y = network.response
    if output_name is None:
        output, name = _output(network, outputs)
        completed |= {} if y in model.potentials else some_rows(model, y, container)[1]
    else:
        output, name = named_output(model, output_name, container), output_name

    def mean_of_layer(variable: Any) -> Variable | None:
        return _mean(network, variable) if variable in network.latents else completed.get(variable)

    def read(known: Known) -> TensorVariable:
        computed, place = follow_rows(output, known, mean_of_layer)
        _require_first(name, place)
        if output not in model.deterministics and not has_law(model, y, NormalRV):
            _require_first(describe(y), follow_rows(parameters(y)[0], known, mean_of_layer)[1])
        return computed

    stand_ins, others = _stand_ins(network, [output], lengths)
    others |= {each: (each, Rows(0)) for each in noise}
    complaint = f"predict cannot tell what {name} computes from each row of {describe(container)}"
    computed, rows = _by_rows(read, others, completed, network, dtype, complaint)
    if computed.ndim > 2:
        raise ValueError(
            f"predict needs {name} of shape (n_obs,) or (n_obs, n_outputs); it has {computed.ndim} "
            "axes."
        )
    entered = {*graph_inputs([computed]), rows[container]}
    return ForwardPass((computed,), _entering(rows, entered), _entering(stand_ins, entered), noise)


def noisy_pass(
    model: pm.Model,
    container: TensorSharedVariable,
    dtype: DTypeLike | None = None,
    lengths: Lengths = NO_LENGTHS,
    gaps: bool = False,
    *,
    named: str | None = None,
) -> NoisyPass:
    """The law of the targets given inputs, weights and noise; of several by the name of one."""
    own = model
    model, completed, of_inputs = read_inputs(own, container, gaps)
    network = network_of(model, container, named=named)
    y = network.response
    completed.pop(y, None)
    law, stated, child, value = read_law(network)
    numbers, whole = some_rows(model, y, container)
    _require_no_potential(model, container, [*network.latents, *of_inputs])
    latents = [z for z in network.latents if z is not child and depends_on(y, {z}, completed)]
    read_as = {rv: network.layer(rv) for rv in latents}
    noise = {rv: _noise(model, rv, layer.noise) for rv, layer in read_as.items()}
    stand_ins, others = _stand_ins(network, stated, lengths)
    normal = *of_inputs, *(kinds["normal"] for kinds in noise.values() if "normal" in kinds)
    uniform = tuple(kinds["uniform"] for kinds in noise.values() if "uniform" in kinds)
    others |= {each: (each, Rows(0)) for each in [*normal, *uniform]}
    others |= {law.value: (law.value, Rows(0))} if isinstance(law, Other) else {}
    made: dict[Any, TensorVariable] = {**whole, **completed} | {
        rv: layer.given(**noise[rv]).astype(rv.dtype) for rv, layer in read_as.items()
    }
    linear = [] if isinstance(law, Other) else _linear(model, child, stated, read_as)

    def read(known: Known) -> list[TensorVariable]:
        followed = [follow_rows(parameter, known, made.get) for parameter in stated]
        for new, place in followed:
            require_aligned(new, place, new.ndim if isinstance(law, Other) else child.ndim)
        for table, place in (follow_rows(table, known, made.get) for table in whole.values()):
            require_aligned(table, place, table.ndim)
        return [new for new, _ in followed]

    complaint = f"the law of {describe(y)} is not known row by row of {describe(container)}"
    computed, rows = _by_rows(read, others, completed, network, dtype, complaint, f"; {ELSEWHERE}")
    return NoisyPass(
        tuple(computed),
        rows,
        _entering(stand_ins, set(graph_inputs(computed))),
        normal,
        y,
        value,
        law,
        uniform,
        tuple(noise[rv]["normal"] for rv in linear),
        numbers,
        noisy_pass(own, container, dtype, lengths, named=named) if of_inputs else None,
        others | {each: (new, Rows(0)) for each, new in rows.items()},
        made,
    )


def read_inputs(
    model: pm.Model, container: TensorSharedVariable, gaps: bool
) -> tuple[pm.Model, dict[Any, Any], tuple[TensorVariable, ...]]:
    """A model, for reading only, whose targets have no gaps and are all that it observes.

    With it what stands for completed inputs, those of other tables with as many rows too, and the
    noise of these if there are ``gaps``. Laws of missing inputs are known, or an error says why.
    """
    model = with_gaps(model)
    imputation_of(model, container)  # raises where it cannot be read
    n_obs, made = len(own_rows(container)), values_of_observed(model)
    found = [each for each in imputations_of(model) if len(own_rows(each.container)) == n_obs]
    for each in found:
        made |= each.made if gaps else dict.fromkeys(each.made, each.inputs)
    noise = tuple(each.noise for each in found) if gaps else ()
    return without(model, {rv for each in found for rv in each.observed}), made, noise


def _by_rows[T](
    read: Callable[[Known], T],
    others: Known,
    completed: Mapping[Any, TensorVariable],
    network: Network,
    dtype: DTypeLike | None,
    complaint: str,
    remedy: str = "",
) -> tuple[T, RowData]:
    """What is read with stand-ins for the inputs and others, and those of data with their rows."""
    model, inputs = network.model, network.inputs
    data = {*arrays_in([*model.basic_RVs, *model.deterministics, *completed.values()])}
    candidates = data.difference(targets_of(model, network.response))
    try:
        return with_rows(
            lambda rows: read(others | rows), {inputs: of_any_length(inputs, dtype)}, candidates
        )
    except MixesRows as reason:
        raise ValueError(f"{complaint}: {reason}{remedy}.") from None


def _entering[V: Variable](
    stand_ins: Mapping[V, TensorVariable], entered: set[Variable]
) -> dict[V, TensorVariable]:
    """The stand-ins that enter what is computed."""
    return {variable: new for variable, new in stand_ins.items() if new in entered}


def _stand_ins(
    network: Network, outputs: Sequence[TensorVariable], lengths: Lengths
) -> tuple[dict[TensorVariable, TensorVariable], Known]:
    """Stand-ins of weights, and of what has been learnt, for outputs to be computed; without rows.

    Differences from a mean are from that of known entries.
    """
    model = network.model
    targets = targets_of(model, network.response).intersection(graph_inputs(outputs))
    learnt = _learnt(model, targets, network.inputs)
    imputed = (rv for _, rv, _ in apart(model))
    stand_ins = {
        variable: stand_in_for(model, variable, lengths.get(variable))
        for variable in dict.fromkeys([*network.weights, *learnt, *imputed])
    }
    known: Known = {variable: (stand_in, None) for variable, stand_in in stand_ins.items()}
    for variable, stand_in in stand_ins.items():
        for difference in differences(outputs, variable):
            if (n := length_of(model, variable, 0)) is not None:
                known[difference] = (about_mean_of_first(stand_in, n), None)
    return stand_ins, known


def stand_in_for(
    model: pm.Model, variable: TensorVariable, length: int | None = None
) -> TensorVariable:
    """A variable whose type tells all lengths that the model knows; of the first another one."""
    lengths = [length_of(model, variable, axis) for axis in range(variable.ndim)]
    lengths[:1] = lengths[:1] if length is None else [length]
    return variable.type.clone(shape=lengths)(variable.name)


def _require_first(name: str, place: object) -> None:
    """Check that rows are along the first axis."""
    if place != Rows(0):
        raise MixesRows(f"{name} has rows along another axis than the first")


def _output(network: Network, named: Sequence[TensorVariable]) -> tuple[TensorVariable, str]:
    """Network output that the response observes, perhaps one of those named, and its name."""
    model, y = network.model, network.response
    if y in model.potentials:
        return named[0], describe(named[0])
    if has_law(model, y, NormalRV):
        return _mean(network, y), describe(y)
    if has_law(model, y, BernoulliRV, CategoricalRV) and not named:
        utilities = network.utilities()
        return _mean(network, utilities), describe(utilities)
    if len(named) != 1:
        raise ValueError(
            f"{describe(y)} depends on the inputs and is {distribution(y)}, whose forward mean "
            "predict does not know; name the network's output, with "
            'pm.Deterministic("f", ...), or pass its name as output=.'
        )
    return named[0], describe(named[0])


def _outputs(model: pm.Model, inputs: TensorSharedVariable) -> list[TensorVariable]:
    """What depends on the inputs and is named the output of a network."""
    return [
        variable
        for variable in model.deterministics
        if variable.name.rpartition("::")[2] == "f" and depends_on(variable, {inputs})
    ]


def named_output(model: pm.Model, name: str, container: TensorSharedVariable) -> TensorVariable:
    """The deterministic of a name."""
    known = {v.name: v for v in model.deterministics if depends_on(v, {container})}
    if name not in known:
        raise ValueError(
            f"output must name a pm.Deterministic that depends on {describe(container)}, "
            f"{f'one of {", ".join(known)}' if known else 'of which there is none'}; got {name!r}."
        )
    return known[name]


def targets_of(model: pm.Model, y: TensorVariable) -> set[Variable]:
    """Data in the graph of a model's variables that are those observed of ``y``, if it is."""
    if y in model.potentials:
        return set()
    values: TensorVariable = model.rvs_to_values[y]
    observed = {leaf for leaf in graph_inputs([values]) if leaf.type.ndim > 0}
    constants = [leaf for leaf in observed if isinstance(leaf, Constant)]
    return {
        leaf
        for leaf in graph_inputs([*model.basic_RVs, *model.deterministics])
        if leaf in observed or any(constant.equals(leaf) for constant in constants)
    }


def _learnt(
    model: pm.Model, targets: set[Variable], container: TensorSharedVariable
) -> list[TensorVariable]:
    """Deterministics that inputs and targets enter as a whole, not row by row."""
    return [
        variable
        for variable in model.deterministics
        if depends_on(variable, targets, model.free_RVs)
        and depends_on(variable, {container})
        and container not in arrays_whose_rows_enter(infer_shape([variable], [], [])[0])
    ]


def _mean(network: Network, rv: TensorVariable) -> TensorVariable:
    """Mean of a layer; a gate is replaced by its probability."""
    layer = network.layer(rv)
    if isinstance(layer, Gates):
        with declined_as(f"predict cannot average over {describe(rv)}"):
            match_gates(network.model, rv)
        return layer.mean
    return layer.mean.astype(rv.dtype)


def _require_no_potential(
    model: pm.Model, container: TensorSharedVariable, latents: Sequence[Variable]
) -> None:
    """Check that no potential changes the law of latent variables."""
    for potential in model.potentials:
        if latents and depends_on(potential, {container}):
            raise ValueError(
                f"{describe(potential)} is a potential that depends on the inputs, so that the "
                "distribution of latent variables is not that of the network; state it as a "
                "distribution."
            )


def _noise(model: pm.Model, rv: TensorVariable, names: Sequence[str]) -> dict[str, TensorVariable]:
    """The noise that a latent variable is a function of, with rows along its first axis."""
    lengths = [length_of(model, rv, axis) for axis in range(1, rv.ndim)]
    if None in lengths:  # those of variables before it, whose dimensions have lengths
        lengths = list(shapes_of(model)[rv][1:])
    return {
        name: pt.tensor(f"{name} of {rv.name}", dtype="float64", shape=(None, *lengths))
        for name in names
    }


def _linear(
    model: pm.Model,
    child: TensorVariable,
    stated: Sequence[TensorVariable],
    latents: Mapping[TensorVariable, Layer],
) -> list[TensorVariable]:
    """Latents, normal given gates, that enter the law of ``child`` by an affine mean alone."""
    (mean, sigma), free = stated, model.basic_RVs
    found: list[TensorVariable] = []
    for rv, layer in latents.items():
        alone = children(model, rv) == (child,) and not depends_on(sigma, {rv}, free)
        if alone and not isinstance(layer, Gates):
            read = known_or_none(affine, mean, {*found, rv}, free)
            found += [] if read is None else [rv]
    return found
