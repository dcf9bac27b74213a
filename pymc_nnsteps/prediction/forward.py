"""Forward pass of a network for each row of its inputs, with latent layers at their means.

Latent layers are the free variables with one row for each row of the inputs. That each row of
the output depends on its own row of the inputs alone is established from the graph
(:mod:`~pymc_nnsteps.graphs.rows`); otherwise there is no prediction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm
from numpy.typing import DTypeLike
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.centred import about_mean_of_first, differences
from pymc_nnsteps.graphs.errors import declined_as
from pymc_nnsteps.graphs.known import has_law
from pymc_nnsteps.graphs.lengths import length_of
from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.places import MixesRows, Place, Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import depends_on, parameters
from pymc_nnsteps.laws.gates import match_gates
from pymc_nnsteps.network.layers import Gates
from pymc_nnsteps.network.network import Network, network_of
from pymc_nnsteps.prediction.gaps import with_gaps
from pymc_nnsteps.prediction.row_data import Known, RowData, with_row_data

Lengths = Mapping[TensorVariable, int]
NO_LENGTHS: Lengths = {}


@dataclass(frozen=True)
class ForwardPass:
    """The network's output as a function of inputs and of what the chain has stored.

    Attributes
    ----------
    output : TensorVariable, shape (n_obs,) or (n_obs, n_outputs)
    rows : dict of Variable to TensorVariable
        What stands for the container of the inputs, and for data that go with its rows.
    weights : dict of TensorVariable to TensorVariable
        What stands for each stored variable of the model that the output depends on.
    """

    output: TensorVariable
    rows: RowData
    weights: dict[TensorVariable, TensorVariable]

    @property
    def parameters(self) -> tuple[TensorVariable, ...]:
        """Outputs of the pass."""
        return (self.output,)


def forward_pass(
    model: pm.Model,
    container: TensorSharedVariable,
    output_name: str | None = None,
    dtype: DTypeLike | None = None,
    lengths: Lengths = NO_LENGTHS,
) -> ForwardPass:
    """Mean of the observed variable with all latent layers at their means.

    Parameters
    ----------
    container : TensorSharedVariable
        The data container of the inputs.
    output_name : str, optional
        Name of a ``pm.Deterministic`` to compute in place of the mean.
    dtype : dtype_like, optional
        Type of the inputs; the container's if not given.
    lengths : mapping
        Numbers of entries of variables that have others than in the model.
    """
    model = with_gaps(model)
    network = network_of(model, container, any_response=output_name is not None)
    y = network.response
    if output_name is None:
        output, name = _output(network)
    else:
        output, name = named_output(model, output_name, container), output_name
    stand_ins = stand_ins_of(network, [output], lengths)
    weights = without_rows(model, stand_ins, [output])

    def mean_of_layer(variable: Any) -> Variable | None:
        return _mean(network, variable) if variable in network.latents else None

    def read(rows: Known) -> TensorVariable:
        computed, place = follow_rows(output, weights | rows, mean_of_layer)
        _require_first(name, place)
        if output not in model.deterministics and not has_law(model, y, NormalRV):
            of_y = follow_rows(parameters(y)[0], weights | rows, mean_of_layer)
            _require_first(describe(y), of_y[1])
        return computed

    try:
        computed, rows = with_row_data(read, model, container, targets_of(model, y), dtype)
    except MixesRows as reason:
        raise ValueError(
            f"predict cannot tell what {name} computes from each row of {describe(container)}: "
            f"{reason}."
        ) from None
    if computed.ndim > 2:
        raise ValueError(
            f"predict needs {name} of shape (n_obs,) or (n_obs, n_outputs); it has {computed.ndim} "
            "axes."
        )
    entered = {*graph_inputs([computed]), rows[container]}
    return ForwardPass(
        computed,
        {data: stand_in for data, stand_in in rows.items() if stand_in in entered},
        {weight: stand_in for weight, stand_in in stand_ins.items() if stand_in in entered},
    )


def stand_ins_of(
    network: Network, outputs: Sequence[TensorVariable], lengths: Lengths
) -> dict[TensorVariable, TensorVariable]:
    """Symbolic stand-ins of the variables that are taken from the posterior.

    Parameters
    ----------
    outputs : sequence of TensorVariable
        What is to be computed.
    lengths : mapping
        As for :func:`forward_pass`.

    Returns
    -------
    dict of TensorVariable to TensorVariable
        For the weights, and what has been learnt.
    """
    targets = targets_of(network.model, network.response).intersection(graph_inputs(outputs))
    learnt = _learnt(network.model, targets, network.inputs)
    return {
        variable: stand_in_for(network.model, variable, lengths.get(variable))
        for variable in [*network.weights, *learnt]
    }


def without_rows(
    model: pm.Model,
    stand_ins: Mapping[TensorVariable, TensorVariable],
    outputs: Sequence[TensorVariable],
) -> Known:
    """Stand-ins for :func:`.follow_rows`; differences from a mean are from that of known entries.

    Parameters
    ----------
    outputs : sequence of TensorVariable
        What is to be computed, in terms of the model's variables.
    """
    known: Known = {variable: (stand_in, None) for variable, stand_in in stand_ins.items()}
    for variable, stand_in in stand_ins.items():
        for difference in differences(outputs, variable):
            if (n := length_of(model, variable, 0)) is not None:
                known[difference] = (about_mean_of_first(stand_in, n), None)
    return known


def stand_in_for(
    model: pm.Model, variable: TensorVariable, length: int | None = None
) -> TensorVariable:
    """A variable whose type tells all lengths that the model knows; of the first another one."""
    lengths = [length_of(model, variable, axis) for axis in range(variable.ndim)]
    lengths[:1] = lengths[:1] if length is None else [length]
    return variable.type.clone(shape=lengths)(variable.name)


def _require_first(name: str, place: Place) -> None:
    """Check that rows are along the first axis."""
    if place != Rows(0):
        raise MixesRows(f"{name} has rows along another axis than the first")


def _output(network: Network) -> tuple[TensorVariable, str]:
    """Network output that the response observes, and its name."""
    model, y = network.model, network.response
    if has_law(model, y, NormalRV):
        return _mean(network, y), describe(y)
    named = [
        variable
        for variable in model.deterministics
        if variable.name.rpartition("::")[2] == "f" and depends_on(variable, {network.inputs})
    ]
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


def named_output(model: pm.Model, name: str, container: TensorSharedVariable) -> TensorVariable:
    """The deterministic of a name."""
    known = {v.name: v for v in model.deterministics if depends_on(v, {container})}
    if name not in known:
        raise ValueError(
            f"output must name a pm.Deterministic that depends on {describe(container)}, one of "
            f"{', '.join(known) or 'none'}; got {name!r}."
        )
    found: TensorVariable = known[name]
    return found


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
        and _n_axes_of_rows(variable, container) == 0
    ]


def _n_axes_of_rows(variable: Variable, container: TensorSharedVariable) -> int:
    """Number of axes of ``variable`` whose lengths vary with the container's number of rows."""
    n_rows = Shape_i(0)
    [lengths] = infer_shape([variable], [], [])
    return sum(
        any(
            part.owner is not None and part.owner.op == n_rows and part.owner.inputs[0] is container
            for part in ancestors([length])
        )
        for length in lengths
    )


def _mean(network: Network, rv: TensorVariable) -> TensorVariable:
    """Mean of a layer; a gate is replaced by its probability."""
    layer = network.layer(rv)
    if isinstance(layer, Gates):
        with declined_as(f"predict cannot average over {describe(rv)}"):
            match_gates(network.model, rv)
        return layer.mean
    return layer.mean.astype(rv.dtype)
