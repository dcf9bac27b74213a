"""Results that print as a small table."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, override

import pandas as pd
import xarray as xr


class Tabulated(ABC):
    """A result that is shown as its table, in a console and in a notebook."""

    formats: ClassVar[Mapping[str, str]]
    """Number formats of the columns."""

    @property
    @abstractmethod
    def table(self) -> pd.DataFrame:
        """One row per quantity."""

    def _formatted(self) -> pd.DataFrame:
        def written(column: pd.Series) -> pd.Series:
            return column.map(self.formats[column.name].format, na_action="ignore").fillna("-")

        return self.table.apply(written)

    @override
    def __str__(self) -> str:
        return self._formatted().to_string()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._formatted().to_html()


def tagged(statistics: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Several statistics of the same quantities, along the dim ``statistic``."""
    together = xr.concat(list(statistics.values()), dim="statistic")
    return together.assign_coords(statistic=list(statistics))
