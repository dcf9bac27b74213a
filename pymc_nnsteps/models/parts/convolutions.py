"""Convolutions and average pooling of images, with their sizes.

A convolution is a dense layer of every patch of an image: with the patches ``P`` of shape
``(n_obs, height, in_channels * ky * kx, width)`` its pre-activations are ``W P + b``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import is_integer, positive_integer

Pair = tuple[int, int]


@dataclass(frozen=True)
class Conv2D:
    """A convolution, optionally followed by average pooling.

    Parameters
    ----------
    channels : int
        Number of output channels.
    kernel, stride : int or (int, int)
        Height and width of the kernel, and its vertical and horizontal stride. One number sets
        both.
    padding : int or (int, int)
        Number of rows of zeros above and below, and of columns left and right of the image.
    pool : int or (int, int)
        Height and width of the adjacent windows over which pre-activations are averaged. Rows and
        columns left over at the lower and right border are in no window. One means no pooling.

    Raises
    ------
    ValueError
        If an argument does not consist of positive integers (``padding``: non-negative ones).

    Examples
    --------
    >>> import pymc_nnsteps as nns
    >>> nns.models.Conv2D(channels=2, kernel=(3, 5), pool=2)
    Conv2D(channels=2, kernel=(3, 5), stride=(1, 1), padding=(0, 0), pool=(2, 2))
    """

    channels: int
    kernel: int | Pair
    stride: int | Pair = 1
    padding: int | Pair = 0
    pool: int | Pair = 1

    def __post_init__(self) -> None:
        """Check the numbers, and write each but the channels as a pair."""
        positive_integer("channels", self.channels)
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("pool", 1)):
            object.__setattr__(self, name, _pair(name, getattr(self, name), least))


@dataclass(frozen=True)
class Convolution:
    """A convolution of images of a known size."""

    channels: int
    image: tuple[int, int, int]  # channels, height and width of what it is applied to
    # As for :class:`Conv2D`.
    kernel: Pair
    stride: Pair
    padding: Pair
    pool: Pair

    @property
    def kernel_shape(self) -> tuple[int, int, int, int]:
        """Shape of the weights: channels, channels of the image, height and width."""
        return (self.channels, self.image[0], *self.kernel)

    @property
    def fan_in(self) -> int:
        """Number of pixels that enter a pre-activation."""
        return int(np.prod(self.kernel_shape[1:]))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the pre-activations."""
        height, width = (
            (length + 2 * padding - kernel) // stride + 1
            for length, kernel, stride, padding in zip(
                self.image[1:], self.kernel, self.stride, self.padding, strict=True
            )
        )
        return (self.channels, height, width)

    @property
    def pooled(self) -> tuple[int, int, int]:
        """Channels, height and width of their means over windows."""
        _, height, width = self.shape
        return (self.channels, height // self.pool[0], width // self.pool[1])

    @property
    def is_pooled(self) -> bool:
        """Whether windows are larger than a pixel."""
        return self.pool != (1, 1)


def sized(convolutions: Sequence[Conv2D], image: tuple[int, int, int]) -> tuple[Convolution, ...]:
    """Give each of several convolutions in a row the size of what it is applied to."""
    if not isinstance(convolutions, Sequence) or not all(
        isinstance(layer, Conv2D) for layer in convolutions
    ):
        raise ValueError(
            "convolutions must be a sequence of Conv2D, such as [Conv2D(channels=2, kernel=3)]; "
            f"got {convolutions!r}."
        )
    found = []
    for number, layer in enumerate(convolutions):
        pairs = (_pair(n, getattr(layer, n), 0) for n in ("kernel", "stride", "padding", "pool"))
        made = Convolution(layer.channels, image, *pairs)
        for what, window, (_, height, width) in (
            ("kernel", made.kernel, np.add(image, (0, *np.multiply(2, made.padding)))),
            ("pool", made.pool, made.shape),
        ):
            if window[0] > height or window[1] > width:
                raise ValueError(
                    f"convolutions[{number}] has a {what} of {_size(window)}, but is applied to "
                    f"{_size((height, width))} pixels; make the {what} smaller"
                    f"{' or the padding larger' if what == 'kernel' else ''}."
                )
        found.append(made)
        image = made.pooled
    return tuple(found)


def convolution(
    images: TensorVariable, made: Convolution, weights: TensorVariable, bias: TensorVariable | None
) -> TensorVariable:
    """The convolution (n_obs, *made.shape) of images (n_obs, in_channels, height, width)."""
    mean = weights.reshape((made.channels, made.fan_in)) @ _patches(images, made)
    return pt.swapaxes(mean if bias is None else mean + bias[:, None], 1, 2)


def average_pool(images: TensorVariable, made: Convolution) -> TensorVariable:
    """Means over windows that lie side by side, of images of shape (n_obs, *made.shape)."""
    (py, px), (_, height, width) = made.pool, made.pooled
    total = sum(
        images[:, :, y : height * py : py, x : width * px : px]
        for y in range(py)
        for x in range(px)
    )
    return total * np.asarray(1 / (py * px), config.floatX)


def _patches(images: TensorVariable, made: Convolution) -> TensorVariable:
    """Patches (n_obs, height, fan_in, width), in memory one matrix on the right of kernels."""
    index, inside = _places(made)
    pixels = images.reshape((images.shape[0], int(np.prod(made.image))))
    patches = pt.swapaxes(pixels[:, index], 0, 1)
    if not inside.all():
        patches = patches * inside[:, None].astype(config.floatX)
    in_memory = patches.reshape((made.fan_in, patches.shape[1], *made.shape[1:]))
    return in_memory.transpose(1, 2, 0, 3)


def _places(made: Convolution) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pixel of the flat image for each weight and position, and whether it is inside."""
    (sy, sx), (py, px) = made.stride, made.padding
    pixels = np.arange(np.prod(made.image)).reshape(made.image)
    padded = np.pad(pixels, ((0, 0), (py, py), (px, px)), constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, made.kernel, axis=(1, 2))
    places = windows[:, ::sy, ::sx].transpose(0, 3, 4, 1, 2)
    index = places.reshape((made.fan_in, *made.shape[1:]))
    return np.maximum(index, 0), index >= 0


def _size(window: Pair) -> str:
    return f"{window[0]} x {window[1]}"


def _pair(name: str, value: object, least: int) -> Pair:
    """Two integers, of which one is given if they are equal."""
    pair = value if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(is_integer(number) and number >= least for number in pair):
        kind = "a positive integer" if least else "a non-negative integer"
        raise ValueError(f"{name} must be {kind} or a pair of them; got {value!r}.")
    return int(pair[0]), int(pair[1])
