"""Widths of a network's layers, and what the dimensions of its variables are called."""

from dataclasses import dataclass

__all__ = ["Stack"]


@dataclass(frozen=True)
class Stack:
    """Layers of a network, from the inputs (0) to the outputs."""

    units: tuple[int, ...]  # their widths
    unit_dims: tuple[str, ...]  # their dimensions
    row_dim: str | None  # the dimension of the rows; None if it has no name

    @property
    def n_layers(self) -> int:
        """Number of layers of weights."""
        return len(self.units) - 1

    def weight_shape(self, layer: int) -> tuple[int, int]:
        """Shape (fan_out, fan_in) of the weights that lead into a layer."""
        return self.units[layer], self.units[layer - 1]

    def weight_dims(self, layer: int) -> tuple[str, str]:
        """Dimensions of the weights that lead into a layer."""
        return self.unit_dims[layer], self.unit_dims[layer - 1]

    def row_dims(self, layer: int) -> tuple[str, str] | None:
        """Dimensions of what a layer computes from each row, if they have names."""
        return None if self.row_dim is None else (self.row_dim, self.unit_dims[layer])
