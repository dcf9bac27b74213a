"""Reading a bow-tie network, with its hyperparameters and data, from the graph of its model.

Nothing is taken from the builder: a network whose hyperparameters were exchanged, or that was
written by hand in the same operations, is read as it stands. Every part of the model is accounted
for; what the variational laws do not fit is declined with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import BernoulliRV, InvGammaRV, NormalRV
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.augmentation import logit_of
from pymc_nnsteps.conditionals.scales import PRIORS
from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import POSITIVE, has_law, prior_kind
from pymc_nnsteps.graphs.names import describe, law_as_stated
from pymc_nnsteps.graphs.search import children, depends_on, parameters, unwrapped
from pymc_nnsteps.variational.laws import GIG
from pymc_nnsteps.variational.network import LayerPrior, Network

__all__ = ["LayerNames", "Reading", "read_model"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class LayerNames:
    """Names of the variables of one layer, None where it has none such."""

    W: str
    b: str
    eta_sq: str
    tau: str | None = None
    psi: str | None = None
    gamma: str | None = None
    a: str | None = None


@dataclass(frozen=True)
class Reading:
    """A network and its data.

    Attributes
    ----------
    network : Network
    names : tuple of LayerNames
    inputs : ndarray, shape (n_obs, n_features)
    targets : ndarray, shape (n_obs, n_outputs)
    has_one_output : bool
        Whether the observed variable has one axis only.
    dims : mapping from name of a variable to names of its dimensions
    coords : mapping from name of a dimension to labels
    input_dims : tuple of str
        Names of the dimensions of the inputs.
    """

    network: Network
    names: tuple[LayerNames, ...]
    inputs: Numbers
    targets: Numbers
    has_one_output: bool
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, tuple[Any, ...]]
    input_dims: tuple[str, ...]


def read_model(model: pm.Model) -> Reading:
    """Read a bow-tie network.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    Reading

    Raises
    ------
    NotConjugate
        If the model is no bow-tie network whose gates are variables, or has other parts.
    """
    if len(model.observed_RVs) != 1 or model.potentials:
        raise NotConjugate(
            "fit needs a model with one observed variable and without potentials; it has "
            f"{len(model.observed_RVs)} and {len(model.potentials)}"
        )
    [y] = model.observed_RVs
    name = y.name.removesuffix("_observed")
    if name != y.name and model.named_vars.get(f"{name}_unobserved") in model.free_RVs:
        raise NotConjugate(
            f"{name} has missing entries, which fit does not impute: leave out the rows with NaN, "
            "or draw from the posterior by pm.sample"
        )
    with declined_as("fit takes networks like those of nns.bow_tie(marginalize_gates=False)"):
        return _Reader(model).read()


@dataclass(frozen=True)
class _Reader:
    """The readers of a model's parts."""

    model: pm.Model

    def read(self) -> Reading:
        [y] = self.model.observed_RVs
        z, sigma = self.normal(y, "the observed variable")
        has_one_output = y.ndim == 1
        if has_one_output:
            z = _only_column(y, z)
        layers, names = [], []
        temperatures: set[float] = set()
        roles: dict[str, TensorVariable] = {}
        while True:
            x, W, b = self.linear_map(z)
            eta_sq = self.noise(y, sigma)
            tau, psi, weight_var = self.weights(W)
            bias_var = np.broadcast_to(self.fixed_variance(b), b.type.shape)
            units, fan_in = W.type.shape
            noise = self.law(eta_sq, (units,))
            layers.append(
                LayerPrior(
                    np.array(bias_var, dtype=float),
                    np.broadcast_to(-noise.nu, units).astype(float),
                    np.broadcast_to(noise.delta2 / 2, units).astype(float),
                    np.array(np.broadcast_to(weight_var, (units, fan_in)), dtype=float),
                    None if tau is None else self.law(tau, ()),
                    None if psi is None else self.law(psi, (units, fan_in)),
                )
            )
            found = roles | {"W": W, "b": b, "eta_sq": eta_sq}
            found |= {} if tau is None or psi is None else {"tau": tau, "psi": psi}
            names.append(found)
            if x not in self.model.free_RVs:
                break
            y = x
            z, gamma, sigma, temperature = self.gated(y)
            temperatures.add(temperature)
            roles = {"a": y, "gamma": gamma}
        self.require_all(names)
        if len(temperatures) > 1:
            raise NotConjugate(f"gates have several temperatures, {sorted(temperatures)}")
        temperature = temperatures.pop() if temperatures else 1.0
        network = Network(temperature, tuple(reversed(layers)))
        return self.with_data(x, network, names, has_one_output)

    def with_data(
        self,
        x: TensorVariable,
        network: Network,
        names: list[dict[str, TensorVariable]],
        has_one_output: bool,
    ) -> Reading:
        [y] = self.model.observed_RVs
        targets = self.number(self.model.rvs_to_values[y], describe(y))
        inputs = self.number(x, describe(x))
        of_layers = (
            LayerNames(**{role: rv.name for role, rv in found.items()}) for found in reversed(names)
        )
        dims = {
            rv.name: tuple(self.model.named_vars_to_dims.get(rv.name) or ())
            for rv in self.model.free_RVs
        }
        coords = {dim: labels for dim, labels in self.model.coords.items() if labels is not None}
        input_dims = self.model.named_vars_to_dims.get(x.name) or ("obs", "feature")
        return Reading(
            network,
            tuple(of_layers),
            inputs,
            targets.reshape(len(targets), -1),
            has_one_output,
            dims,
            coords,
            tuple(input_dims),
        )

    def normal(self, rv: TensorVariable, role: str) -> tuple[TensorVariable, TensorVariable]:
        """Mean and standard deviation."""
        if not has_law(self.model, rv, NormalRV):
            raise NotConjugate(
                f"{describe(rv)}, {role}, is {law_as_stated(self.model, rv)}, not Normal"
            )
        mu, sigma = parameters(rv)
        return unwrapped(mu), unwrapped(sigma)

    def linear_map(
        self, z: TensorVariable
    ) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
        """``x``, ``W`` and ``b`` of ``x @ W.T + b``."""
        operands = _operands(z, scalar.Add)
        if operands is not None and len(operands) == 2:
            for product, bias in (operands, operands[::-1]):
                pair, b = _product(product), _broadcast(bias)
                if pair is not None and b in self.model.free_RVs and b.ndim == 1:
                    x, W = pair
                    if W in self.model.free_RVs and None not in (*W.type.shape, *b.type.shape):
                        return x, W, b
        raise NotConjugate(
            f"{describe(z)} is not read as x @ W.T + b with free variables W and b of known shape"
        )

    def gated(
        self, a: TensorVariable
    ) -> tuple[TensorVariable, TensorVariable, TensorVariable, float]:
        """``z``, gates, noise and temperature of activations."""
        mean, sigma = self.normal(a, "an activation")
        operands = _operands(mean, scalar.Mul)
        if operands is not None and len(operands) == 2:
            for gamma, z in (operands, operands[::-1]):
                if gamma in self.model.free_RVs and has_law(self.model, gamma, BernoulliRV):
                    return z, gamma, sigma, self.temperature(gamma, z)
        raise NotConjugate(f"the mean of {describe(a)} is not read as gamma * z with gates gamma")

    def temperature(self, gamma: TensorVariable, z: TensorVariable) -> float:
        """``T``, where the gates have probability ``sigmoid(z / T)``."""
        logit = logit_of(gamma)
        if logit is not None:
            logit = unwrapped(logit)
            if logit is z:
                return 1.0
            quotient = _operands(logit, scalar.TrueDiv)
            if quotient is not None and quotient[0] is z:
                value = self.number(quotient[1], f"the temperature of {describe(gamma)}")
                if value.size == 1 and value.item() > 0:
                    return float(value.item())
        raise NotConjugate(
            f"the probability of {describe(gamma)} is not read as sigmoid(z / T) with the z of its "
            "activations and a number T"
        )

    def noise(self, y: TensorVariable, sigma: TensorVariable) -> TensorVariable:
        """The variable that is the noise variance of each unit."""
        factors, constant = self.variance(sigma)
        if len(factors) != 1 or factors[0].ndim != 1 or np.any(constant != 1):
            raise NotConjugate(
                f"the standard deviation of {describe(y)} is not read as the root of one free "
                "variable with an entry for each unit"
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
        mu, sigma = self.normal(W, "weights")
        self.require_zero(W, mu)
        factors, constant = self.variance(sigma)
        if not factors:
            return None, None, constant
        factors = sorted(factors, key=lambda rv: rv.ndim)
        if [rv.ndim for rv in factors] != [0, 2] or factors[1].type.shape != W.type.shape:
            raise NotConjugate(
                f"the variance of {describe(W)} is the product of "
                f"{', '.join(map(describe, factors))}; fit takes one scale for all weights of the "
                "layer times one for each, or a known variance"
            )
        return factors[0], factors[1], constant

    def fixed_variance(self, rv: TensorVariable) -> Numbers:
        """A known variance about zero."""
        mu, sigma = self.normal(rv, "biases")
        self.require_zero(rv, mu)
        return self.number(sigma, f"the standard deviation of {describe(rv)}") ** 2

    def require_zero(self, rv: TensorVariable, mu: TensorVariable) -> None:
        """Check a mean."""
        if np.any(self.number(mu, f"the mean of {describe(rv)}") != 0):
            raise NotConjugate(f"the mean of {describe(rv)} is not zero")

    def variance(self, sigma: TensorVariable) -> tuple[list[TensorVariable], Numbers]:
        """Free variables whose product with a constant is the square of ``sigma``."""
        sigma = _broadcast(sigma)
        if not depends_on(sigma, set(self.model.free_RVs)):
            return [], self.number(sigma, "a standard deviation") ** 2
        root = _operands(sigma, scalar.Sqrt)
        if root is not None:
            return self.factors(root[0])
        parts = _operands(sigma, scalar.Mul)
        if parts is None:
            raise NotConjugate(
                f"{describe(sigma)} is not read as the root of a product of free variables"
            )
        found: list[TensorVariable] = []
        constant: Numbers = np.ones(())
        for part in parts:
            more, its_constant = self.variance(part)
            found, constant = found + more, constant * its_constant
        return found, constant

    def factors(self, product: TensorVariable) -> tuple[list[TensorVariable], Numbers]:
        """Free variables of a product, and its constant."""
        product = _broadcast(product)
        if product in self.model.free_RVs:
            return [product], np.ones(())
        if not depends_on(product, set(self.model.free_RVs)):
            return [], self.number(product, "a variance")
        parts = _operands(product, scalar.Mul)
        if parts is None:
            raise NotConjugate(f"{describe(product)} is not read as a product of free variables")
        found: list[TensorVariable] = []
        constant: Numbers = np.ones(())
        for part in parts:
            more, its_constant = self.factors(part)
            found, constant = found + more, constant * its_constant
        return found, constant

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
            raise NotConjugate(f"the entries of {describe(rv)} have laws of several orders")
        for part in (delta2, lambda2):
            if np.any(part == 0) and not np.all(part == 0):
                raise NotConjugate(f"the entries of {describe(rv)} have laws of several families")
        if has_law(self.model, rv, InvGammaRV, support=POSITIVE) and rv.ndim == 1:
            return GIG(float(nu.flat[0]), delta2, lambda2)
        return GIG(float(nu.flat[0]), _squeezed(delta2), _squeezed(lambda2))

    def number(self, expression: Variable, what: str) -> Numbers:
        """Value of an expression that no random variable enters."""
        if depends_on(expression, set(self.model.basic_RVs)):
            raise NotConjugate(f"{what} depends on random variables; fit takes it as a number")
        value = pt.as_tensor(expression).eval(mode="FAST_COMPILE")
        return np.asarray(value, dtype=np.float64)

    def require_all(self, names: list[dict[str, TensorVariable]]) -> None:
        """Check that each free variable has one part, and is the parent of nothing else."""
        found = [rv for layer in names for rv in layer.values()]
        others = [rv for rv in self.model.free_RVs if rv not in found]
        twice = [rv for rv in self.model.free_RVs if found.count(rv) > 1]
        if others or twice:
            which = ", ".join(map(describe, others or twice))
            how = "no part" if others else "several parts"
            raise NotConjugate(f"{which} of the model has {how} in the bow-tie network of fit")
        after: set[TensorVariable] = set()
        for layer in names:
            values = {layer["a"]} if "a" in layer else set(self.model.observed_RVs)
            maps = values | ({layer["gamma"]} if "gamma" in layer else set())
            expected = {"W": maps, "b": maps, "eta_sq": values, "gamma": values, "a": after}
            expected |= {"tau": {layer["W"]}, "psi": {layer["W"]}}
            for role, rv in layer.items():
                if set(children(self.model, rv)) != expected[role]:
                    raise NotConjugate(
                        f"{describe(rv)} enters other variables than those of a bow-tie network"
                    )
            after = maps


def _squeezed(value: Numbers) -> Numbers:
    """One number, where all are the same."""
    return np.asarray(value.flat[0]) if np.all(value == value.flat[0]) else value


def _operands(expression: TensorVariable, op: type) -> list[TensorVariable] | None:
    """Operands of an elementwise operation, if the expression is one."""
    node = expression.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, op):
        return None
    return [unwrapped(operand) for operand in node.inputs]


def _broadcast(expression: TensorVariable) -> TensorVariable:
    """Expression without the leading axes that it is repeated along."""
    expression = unwrapped(expression)
    node = expression.owner
    if node is not None and isinstance(node.op, DimShuffle):
        order = [axis for axis in node.op.new_order if axis != "x"]
        trailing = node.op.new_order[len(node.op.new_order) - len(order) :]
        if list(trailing) == list(range(node.inputs[0].ndim)):
            return unwrapped(node.inputs[0])
    return expression


def _product(expression: TensorVariable) -> tuple[TensorVariable, TensorVariable] | None:
    """``x`` and ``W`` of ``x @ W.T``."""
    node = expression.owner
    if node is None:
        return None
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if not isinstance(op, Dot) or any(operand.ndim != 2 for operand in node.inputs):
        return None
    x, transposed = map(unwrapped, node.inputs)
    turn = transposed.owner
    if turn is None or not isinstance(turn.op, DimShuffle) or tuple(turn.op.new_order) != (1, 0):
        return None
    return x, unwrapped(turn.inputs[0])


def _only_column(y: TensorVariable, mean: TensorVariable) -> TensorVariable:
    """``z`` of ``z[:, 0]``, of one column."""
    node = mean.owner
    if node is not None and isinstance(node.op, Subtensor):
        indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        column = indices[1] if len(indices) == 2 else None
        value = getattr(column, "data", column)
        if indices[0] == slice(None) and value == 0 and node.inputs[0].type.shape[1] == 1:
            return unwrapped(node.inputs[0])
    raise NotConjugate(f"the mean of {describe(y)} is not read as z[:, 0] of one output")
