"""Convolutional networks with intermediate noise: convolutions, average pooling, dense layers.

The network of Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*
(arXiv 2306.02729), Appendix G. For the convolutional layers ``l``, of images ``X^(l)`` with
``X^(1)`` the inputs, at each position ``p`` and for each channel ``a``::

    W^(l)_acyx ~ N(0, 1/lambda_W^(l)),   b^(l)_a ~ N(0, 1/lambda_b^(l))
    Z^(l+1)_ap ~ N(sum_cyx W^(l)_acyx X^(l)_c,(p s + yx) + b^(l)_a, Delta_Z^(l+1))
    P^(l+1)_aq ~ N(mean of Z^(l+1)_ap over the window q, Delta_P^(l+1))     where there is pooling
    X^(l+1) ~ N(sigma(P^(l+1)), Delta_X^(l+1))                              or sigma(Z^(l+1))

The dense layers behind them, and what is observed, are those of :mod:`.intermediate_noise`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import Activation, activation_function
from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.graphs.initial_values import start_of
from pymc_nnsteps.models.intermediate_noise import OWN
from pymc_nnsteps.models.parts import data, layers
from pymc_nnsteps.models.parts.context import Dim, add_rehearsed, recorded
from pymc_nnsteps.models.parts.convolutions import (
    Conv2D,
    Convolution,
    average_pool,
    convolution,
    sized,
)
from pymc_nnsteps.models.parts.inputs import Inputs
from pymc_nnsteps.models.parts.likelihoods import (
    OfNoisyLayers,
    Start,
    likelihood_of,
    observe_noisy,
)
from pymc_nnsteps.models.parts.noise import Noise, Variances, noisy, variances
from pymc_nnsteps.models.parts.scaffold import response, warn_of_scales


@recorded
def intermediate_noise_cnn(
    X: ArrayLike,
    y: ArrayLike | pd.Series | pd.DataFrame | pd.Categorical,
    *,
    convolutions: Sequence[Conv2D] = (Conv2D(channels=2, kernel=4, stride=2, pool=2),),
    hidden: Sequence[int] = (),
    activation: Activation = "relu",
    noise: Noise | None = None,
    sigma: Noise | None = None,
    weight_precision: float | Sequence[float] | None = None,
    bias_precision: float | Sequence[float] | None = None,
    bias: bool = True,
    likelihood: OfNoisyLayers = "normal",
    exposure: ArrayLike | pd.Series | None = None,
    censored: ArrayLike | pd.Series | None = None,
    start: Start = "support_point",
) -> pm.Model:
    """Build a convolutional network with intermediate noise as a plain PyMC model.

    Inside ``with pm.Model(...)`` the network is added to that model, whose ``coords`` are used
    where they name one of the network's dimensions; otherwise a new model is made.

    Parameters
    ----------
    X : array_like, shape (n_obs, height, width) or (n_obs, channels, height, width)
        Images.
    y : array_like, Series, DataFrame or Categorical, shape (n_obs,) or (n_obs, n_outputs)
        Targets, as for :func:`~pymc_nnsteps.intermediate_noise_mlp`.
    convolutions : sequence of Conv2D
        The first layers, each applied to what the one before it makes.
    hidden : sequence of int
        Widths of the hidden dense layers behind them.
    activation : str or PiecewiseLinear
        As for :func:`~pymc_nnsteps.intermediate_noise_mlp`. It comes after the pooling.
    noise : float, "learnt", Prior or dict
        Variance ``Delta``, as for :func:`~pymc_nnsteps.intermediate_noise_mlp`, but 1e-2 if neither
        ``noise`` nor ``sigma`` is given: one for all, or
        ``{"pre": ..., "pool": ..., "post": ..., "output": ...}`` for pre-activations, pooled
        pre-activations, post-activations (each one, or one per layer: per convolution and
        hidden layer, for ``"pool"`` per convolution that is pooled) and the last pre-activations.
        A layer without noise is a ``pm.Deterministic``. The output noise must be positive.
    sigma : float, "learnt", Prior or dict
        Standard deviations, in place of the variances of ``noise``.
    weight_precision, bias_precision : float, sequence of float (one per layer) or None
        Prior precisions ``lambda_W`` and ``lambda_b``. None is the fan-in: of a convolution, the
        number of weights of a kernel.
    bias : bool
        Whether layers have biases, one per channel or unit.
    likelihood : str
        As for :func:`~pymc_nnsteps.intermediate_noise_mlp`.
    exposure, censored : array_like, shape (n_obs,), optional
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.
    start : {"support_point", "prior"}
        Initial values of the chains: zero weights, or a draw from the prior, another one for
        each chain.

    Returns
    -------
    pm.Model
        With free variables ``W1`` (channels, in_channels, ky, kx), ``b1`` (channels,), ``Z2``
        (n_obs, channels, height, width), with pooling ``P2``, and ``X2``, ..., then the layers of
        :func:`~pymc_nnsteps.intermediate_noise_mlp` with ``W{l}`` (units, fan_in); observed ``y``;
        data containers ``inputs`` and ``targets``; and dimensions ``"obs"``, ``"height"``,
        ``"width"`` (and ``"channel"``) of the images, ``"channel1"``, ``"height1"``, ``"width1"``,
        ``"pooled_height1"``, ``"kernel_height1"``, ... of the first layer, and so on, then
        ``"pixel"`` (inputs of the first dense layer), ``"hidden2"``, ..., ``"output"``.

    Raises
    ------
    ValueError
        If an argument is unusable, a kernel or window is larger than what it is applied to, or
        names clash with those of the model around it. Nothing has been added to that model then.

    Warns
    -----
    UserWarning
        If images or real ``y`` are on a scale far from 1, or constant.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*,
    arXiv 2306.02729, Appendix G.

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(20, 8, 8))
    >>> convolutions = [nns.Conv2D(2, 3, pool=2)]
    >>> model = nns.intermediate_noise_cnn(X, X.mean((1, 2)), convolutions=convolutions)
    >>> [variable.name for variable in model.free_RVs]
    ['W1', 'b1', 'Z2', 'P2', 'X2', 'W2', 'b2']
    >>> model["P2"].type.shape
    (None, 2, 3, 3)
    """
    likelihood_of(likelihood, OWN, {})
    require_choice("start", start, get_args(Start))
    images = data.images(X).values
    found = response(likelihood, OWN, X, y, len(images), exposure, censored)
    image = (1, *images.shape[1:])[-3:]
    maps = sized(convolutions, image)
    last = maps[-1].pooled if maps else image
    units = (int(np.prod(last)), *layers.layer_sizes(hidden), found.targets.n_outputs)
    fan_in = (*(made.fan_in for made in maps), *units[:-1])
    of_hidden = (len(fan_in) - 1, "hidden layer")
    of_pooled = (sum(made.is_pooled for made in maps), "pooled convolution")
    network = ConvolutionalLayers(
        activation_function(activation),
        maps,
        units,
        _dims(image, maps, units, found.outputs) | found.dims,
        variances(
            noise,
            sigma,
            {"pre": of_hidden, "pool": of_pooled, "post": of_hidden},
            needed=likelihood in OWN,
        ),
        layers.precisions("weight_precision", weight_precision, fan_in),
        layers.bias_precisions(bias, bias_precision, fan_in),
        start,
    )
    _require_size(maps, len(images))
    layers.require_size(units, len(images))
    rows = ("obs", *("channel", "height", "width")[4 - images.ndim :])
    pixels = np.moveaxis(images.reshape(-1, *image), 1, -1).reshape(-1, image[0])
    warn_of_scales(Inputs(pixels, None), found.real)

    def build() -> None:
        inputs = pm.Data("inputs", images, dims=rows)
        seen = found.add()
        z = network.add(inputs if images.ndim == 4 else inputs[:, None], inputs.shape[0])
        [variance] = network.noise["output"]
        observe_noisy(likelihood, network.n_layers + 1, z, variance, seen, start)

    return add_rehearsed(build, network.dims, len(images))


@dataclass(frozen=True)
class ConvolutionalLayers:
    """A network up to its last linear map."""

    function: Callable[[TensorVariable], TensorVariable]  # the activation
    maps: Sequence[Convolution]  # convolutions, the first layers
    units: tuple[int, ...]  # widths of what the dense layers see and of the outputs
    dims: dict[str, Dim]  # all dimensions but that of the rows
    noise: Variances  # from each kind of noise to the variances of its layers
    # One per layer; no biases where it is None.
    weight_precisions: tuple[float, ...]
    bias_precisions: tuple[float | None, ...]
    start: Start

    @property
    def n_layers(self) -> int:
        """Number of layers of weights."""
        return len(self.weight_precisions)

    def add(self, x: TensorVariable, n_obs: TensorVariable) -> TensorVariable:
        """Add the layers of images (n_obs, channels, height, width); return the last linear map."""
        for layer, made in enumerate(self.maps, 1):
            x = self._convolutional(layer, x, made, n_obs)
        x = x.reshape((x.shape[0], self.units[0]))
        for layer in range(len(self.maps) + 1, self.n_layers):
            z, names = self._dense(layer, x), self._unit_dims(layer)[:1]
            x = self._activations(layer, z, names, n_obs)
        return self._dense(self.n_layers, x)

    def _convolutional(
        self, layer: int, x: TensorVariable, made: Convolution, n_obs: TensorVariable
    ) -> TensorVariable:
        """A convolution, with its noise, pooling and activation."""
        z = convolution(
            layer,
            x,
            made,
            dims=_kernel_dims(layer),
            weight_precision=self.weight_precisions[layer - 1],
            bias_precision=self.bias_precisions[layer - 1],
            initval=start_of(self.start),
        )
        if not made.is_pooled:
            return self._activations(layer, z, _map_dims(layer), n_obs)
        z = self._noisy("Z", layer, z, _map_dims(layer), n_obs)
        names = _map_dims(layer, "pooled_")
        pooled = self._noisy("P", layer, average_pool(z, made), names, n_obs)
        return self._noisy("X", layer, self.function(pooled), names, n_obs)

    def _activations(
        self, layer: int, z: TensorVariable, names: Sequence[str], n_obs: TensorVariable
    ) -> TensorVariable:
        """Pre-activations with noise, and post-activations with noise."""
        z = self._noisy("Z", layer, z, names, n_obs)
        return self._noisy("X", layer, self.function(z), names, n_obs)

    def _noisy(
        self,
        role: str,
        layer: int,
        mean: TensorVariable,
        names: Sequence[str],
        n_obs: TensorVariable,
    ) -> TensorVariable:
        kind = {"Z": "pre", "P": "pool", "X": "post"}[role]
        of_layer = layer - 1 if role != "P" else sum(m.is_pooled for m in self.maps[: layer - 1])
        lengths: tuple[TensorVariable | int, ...] = (
            n_obs,
            *(self.dims[name].length for name in names),
        )
        return noisy(
            f"{role}{layer + 1}",
            mean,
            self.noise[kind][of_layer],
            ("obs", *names),
            start_of(self.start),
            lengths,
        )

    def _dense(self, layer: int, x: TensorVariable) -> TensorVariable:
        """The linear map of a dense layer."""
        of_units = layer - len(self.maps)
        return layers.dense(
            layer,
            x,
            shape=(self.units[of_units], self.units[of_units - 1]),
            dims=self._unit_dims(layer),
            weight_precision=self.weight_precisions[layer - 1],
            bias_precision=self.bias_precisions[layer - 1],
            initval=start_of(self.start),
        )

    def _unit_dims(self, layer: int) -> tuple[str, str]:
        """Dimensions of a dense layer's weights."""
        names, of_units = _unit_dims(len(self.maps), self.n_layers), layer - len(self.maps)
        return names[of_units], names[of_units - 1]


def _map_dims(layer: int, kind: str = "") -> tuple[str, str, str]:
    return f"channel{layer}", f"{kind}height{layer}", f"{kind}width{layer}"


def _kernel_dims(layer: int) -> tuple[str, str, str, str]:
    of_image = f"channel{layer - 1}" if layer > 1 else "channel"
    return f"channel{layer}", of_image, f"kernel_height{layer}", f"kernel_width{layer}"


def _unit_dims(n_convolutions: int, n_layers: int) -> tuple[str, ...]:
    """Dimensions of the inputs of each dense layer, and of the outputs."""
    hidden = (f"hidden{layer}" for layer in range(n_convolutions + 1, n_layers))
    return ("pixel", *hidden, "output")


def _dims(
    image: tuple[int, int, int],
    maps: Sequence[Convolution],
    units: Sequence[int],
    outputs: tuple[object, ...] | None,
) -> dict[str, Dim]:
    """All dimensions but that of the rows."""
    dims = dict(zip(("channel", "height", "width"), map(Dim, image), strict=True))
    for layer, made in enumerate(maps, 1):
        dims |= zip(_map_dims(layer), map(Dim, made.shape), strict=True)
        dims |= zip(_kernel_dims(layer)[2:], map(Dim, made.kernel), strict=True)
        if made.is_pooled:
            dims |= zip(_map_dims(layer, "pooled_"), map(Dim, made.pooled), strict=True)
    names = _unit_dims(len(maps), len(maps) + len(units) - 1)
    dims |= zip(names, map(Dim, units), strict=True)
    return {**dims, "output": Dim(units[-1], outputs)}


def _require_size(maps: Sequence[Convolution], n_obs: int) -> None:
    """Check that patches are not larger than any computer's memory."""
    for number, made in enumerate(maps):
        numbers = n_obs * int(np.prod(made.shape[1:])) * max(made.fan_in, made.channels)
        if numbers > layers.MOST_NUMBERS:
            raise ValueError(
                f"convolutions[{number}] asks for {numbers:.2g} numbers in one layer ({n_obs} "
                f"images, {made.shape[1]} x {made.shape[2]} positions of {made.fan_in} pixels); "
                f"take fewer images, longer strides or smaller kernels."
            )
