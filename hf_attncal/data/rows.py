"""Many short lists of numbers in few arrays: for 100 million tokens, lists of lists would take gigabytes."""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from datasets import Dataset

from .pharaoh import Link

_ROWS_AT_ONCE = 10_000  # rows joined or passed to Arrow at a time


class Rows(Sequence[np.ndarray]):
    """Lists of numbers in one array.

    Args:
        values: numbers of all rows, (values,).
        starts: start of each row in `values`, then the number of values, (rows + 1,).
    """

    def __init__(self, values: np.ndarray, starts: np.ndarray):
        self.values, self.starts = values, starts

    @classmethod
    def of(cls, dataset: Dataset, column: str) -> "Rows":
        """Read a column of lists of numbers."""
        chunks = [chunk[column].combine_chunks() for chunk in dataset.with_format("arrow").iter(_ROWS_AT_ONCE)]
        lengths = np.concatenate([np.asarray(chunk.value_lengths()) for chunk in chunks])
        return cls(np.concatenate([np.asarray(chunk.flatten()) for chunk in chunks]), _starts(lengths))

    @classmethod
    def gathered(cls, rows: Iterable[tuple[int, np.ndarray]], number: int) -> "Rows":
        """Collect `number` rows of int32, given in any order with their row numbers; missing rows are empty."""
        lengths, order = np.zeros(number, dtype=np.int64), array("q")
        joined: list[np.ndarray] = []
        waiting: list[np.ndarray] = []
        for row, values in rows:
            order.append(row)
            lengths[row] = len(values)
            waiting.append(values)
            if len(waiting) == _ROWS_AT_ONCE:
                joined.append(np.concatenate(waiting, dtype=np.int32))
                waiting.clear()
        if waiting:
            joined.append(np.concatenate(waiting, dtype=np.int32))
        gathered = cls(np.empty(lengths.sum(), dtype=np.int32), _starts(lengths))
        joined.reverse()
        for first in range(0, len(order), _ROWS_AT_ONCE):
            numbers = np.array(order[first : first + _ROWS_AT_ONCE])
            gathered.values[gathered._places(numbers)] = joined.pop()  # frees its memory
        return gathered

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row):
        return self.values[self.starts[row] : self.starts[row + 1]]

    def where(self, mask: np.ndarray) -> "Rows":
        """Return the rows with only the values where `mask` is true, (values,) bool."""
        return Rows(self.values[mask], np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])[self.starts])

    def within(self) -> np.ndarray:
        """Return the position of each value in its row, (values,)."""
        return np.arange(len(self.values)) - np.repeat(self.starts[:-1], np.diff(self.starts))

    def selected(self, rows: np.ndarray) -> "Rows":
        """Return the rows with these numbers."""
        return Rows(self.values[self._places(rows)], _starts(np.diff(self.starts)[rows]))

    def column(self) -> pa.ChunkedArray:
        """Convert the rows to a column of a Dataset."""
        firsts = range(0, len(self), _ROWS_AT_ONCE) or [0]
        chunks = []
        for starts in (self.starts[first : first + _ROWS_AT_ONCE + 1] for first in firsts):
            values = pa.array(self.values[starts[0] : starts[-1]], pa.int32())
            chunks.append(pa.ListArray.from_arrays(pa.array(starts - starts[0], pa.int32()), values))
        return pa.chunked_array(chunks)

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """Return the positions of the values of these rows, row by row."""
        lengths = np.diff(self.starts)[rows]
        ends = np.cumsum(lengths)
        return np.repeat(self.starts[rows] - (ends - lengths), lengths) + np.arange(lengths.sum())


class LinkRows(Sequence[list[Link]]):
    """Links of many sentence pairs.

    Args:
        rows: source and target word of each link of a pair in turn.
    """

    def __init__(self, rows: Rows):
        self._rows = rows

    @classmethod
    def gathered(cls, links: Iterable[Iterable[Link]], number: int) -> "LinkRows":
        """Collect the links of `number` pairs, given in order."""
        rows = (np.array(sorted(pair), dtype=np.int32).reshape(-1) for pair in links)
        return cls(Rows.gathered(enumerate(rows), number))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row):
        return list(map(tuple, self._rows[row].reshape(-1, 2).tolist()))

    def selected(self, rows: np.ndarray) -> "LinkRows":
        """Return the links of the pairs with these numbers."""
        return LinkRows(self._rows.selected(rows))


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
