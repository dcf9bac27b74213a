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

from collections.abc import Sequence
from typing import get_args, override

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import Activation
from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.graphs.initial_values import beginning
from pymc_nnsteps.models.intermediate_noise import OWN, NoisyLayers
from pymc_nnsteps.models.parts import data, layers
from pymc_nnsteps.models.parts.context import Dim, Stack, add_rehearsed, recorded
from pymc_nnsteps.models.parts.convolutions import (
    Conv2D,
    Convolution,
    average_pool,
    convolution,
    sized,
)
from pymc_nnsteps.models.parts.inputs import Inputs
from pymc_nnsteps.models.parts.layers import Noise, Variance, noisy
from pymc_nnsteps.models.parts.likelihoods import OfNoisyLayers, Start
from pymc_nnsteps.models.parts.scaffold import Response, warn_of_scales


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

    Inside ``with pm.Model(...)`` the network is added to that model, and uses its ``coords`` for
    dimensions of the same name. Otherwise a new model is created.

    Parameters
    ----------
    X : array_like, shape (n_obs, height, width) or (n_obs, channels, height, width)
        Images.
    y : array_like, Series, DataFrame or Categorical, shape (n_obs,) or (n_obs, n_outputs)
        Targets, as for :func:`~pymc_nnsteps.intermediate_noise_mlp`.
    convolutions : sequence of Conv2D
        The first layers, each applied to the output of the one before.
    hidden : sequence of int
        Widths of the hidden dense layers after the convolutions.
    activation : str or PiecewiseLinear
        As for :func:`~pymc_nnsteps.intermediate_noise_mlp`. It is applied after the pooling.
    noise : float, "learnt", Prior or dict
        Variance ``Delta``, as for :func:`~pymc_nnsteps.intermediate_noise_mlp`, but 1e-2 if neither
        ``noise`` nor ``sigma`` is given. One value applies to all layers.
        ``{"pre": ..., "pool": ..., "post": ..., "output": ...}`` sets the variances of
        pre-activations, pooled pre-activations, post-activations and the last pre-activations. Each
        of the first three is one value or one per layer: per convolution and hidden layer, or for
        ``"pool"`` per pooled convolution. A layer without noise is a ``pm.Deterministic``. The
        output noise must be positive.
    sigma : float, "learnt", Prior or dict
        Standard deviations, in place of the variances of ``noise``.
    weight_precision, bias_precision, bias, likelihood, exposure, censored, start
        As for :func:`~pymc_nnsteps.intermediate_noise_mlp`. The fan-in of a convolution is the
        number of weights of a kernel, and each channel has one bias.

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
        If an argument is invalid, if a kernel or window is larger than its input, or if names clash
        with those of the enclosing model. That model is then left unchanged.

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
    >>> convolutions = [nns.models.Conv2D(2, 3, pool=2)]
    >>> model = nns.intermediate_noise_cnn(X, X.mean((1, 2)), convolutions=convolutions)
    >>> [variable.name for variable in model.free_RVs]
    ['W1', 'b1', 'Z2', 'P2', 'X2', 'W2', 'b2']
    >>> model["P2"].type.shape
    (None, 2, 3, 3)
    """
    require_choice("start", start, get_args(Start))
    images = data.images(X).values
    given = {"exposure": exposure, "censored": censored}
    found = Response(likelihood, OWN, X, y, len(images), given)
    image = (1, *images.shape[1:])[-3:]
    maps = sized(convolutions, image)
    last = maps[-1].pooled if maps else image
    widths = layers.layer_sizes(hidden)
    units = (int(np.prod(last)), *widths, found.targets.n_outputs)
    names = (f"hidden{layer}" for layer in range(len(maps) + 1, len(maps) + len(widths) + 1))
    network = ConvolutionalLayers(
        Stack(units, ("pixel", *names, "output"), "obs"),
        activation,
        noise,
        sigma,
        weight_precision,
        bias_precision,
        bias,
        observed=True,
        needed=likelihood in OWN,
        maps=maps,
    )
    _require_size(maps, len(images))
    layers.require_size(units, len(images))
    dims = ("obs", *("channel", "height", "width")[4 - images.ndim :])
    pixels = np.moveaxis(images.reshape(-1, *image), 1, -1).reshape(-1, image[0])
    warn_of_scales(Inputs(pixels, None), found.real)

    def build() -> None:
        inputs = pm.Data("inputs", images, dims=dims)
        seen = found.add()
        with beginning(start):
            x = inputs if images.ndim == 4 else inputs[:, None]
            network.observe(likelihood, x, seen, start)

    every_dim = _dims(image, maps, network.stack, found.outputs) | found.dims
    return add_rehearsed(build, every_dim, len(images))


class ConvolutionalLayers(NoisyLayers):
    """Convolutions of images before the layers of a network with noise."""

    @override
    def mean(self, x: TensorVariable) -> TensorVariable:
        """Add all layers up to the last linear map of images (n_obs, channels, height, width)."""
        n_obs, of_pooled = x.shape[0], iter(self.delta["pool"])

        def add(name: str, mean: TensorVariable, variance: Variance) -> TensorVariable:
            return noisy(name, mean, variance, ("obs", *names), (n_obs, *mean.type.shape[1:]))

        for layer, made in enumerate(self.maps, 1):
            names = _map_dims(layer)
            weights = self.parameters(layer, made.kernel_shape, _kernel_dims(layer))
            z = convolution(x, made, *weights)
            z = add(f"Z{layer + 1}", z, self.delta["pre"][layer - 1])
            if made.is_pooled:
                names = _map_dims(layer, "pooled_")
                z = add(f"P{layer + 1}", average_pool(z, made), next(of_pooled))
            x = add(f"X{layer + 1}", self.function(z), self.delta["post"][layer - 1])
        return super().mean(x.reshape((x.shape[0], self.stack.units[0])))


def _map_dims(layer: int, kind: str = "") -> tuple[str, str, str]:
    return f"channel{layer}", f"{kind}height{layer}", f"{kind}width{layer}"


def _kernel_dims(layer: int) -> tuple[str, str, str, str]:
    of_image = f"channel{layer - 1}" if layer > 1 else "channel"
    return f"channel{layer}", of_image, f"kernel_height{layer}", f"kernel_width{layer}"


def _dims(
    image: tuple[int, int, int],
    maps: Sequence[Convolution],
    stack: Stack,
    outputs: tuple[object, ...] | None,
) -> dict[str, Dim]:
    """All dimensions but that of the rows."""
    dims = dict(zip(("channel", "height", "width"), map(Dim, image), strict=True))
    for layer, made in enumerate(maps, 1):
        dims |= zip(_map_dims(layer), map(Dim, made.shape), strict=True)
        dims |= zip(_kernel_dims(layer)[2:], map(Dim, made.kernel), strict=True)
        if made.is_pooled:
            dims |= zip(_map_dims(layer, "pooled_"), map(Dim, made.pooled), strict=True)
    dims |= zip(stack.unit_dims, map(Dim, stack.units), strict=True)
    return {**dims, "output": Dim(stack.units[-1], outputs)}


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
