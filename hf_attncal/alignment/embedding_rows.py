"""Embeddings of the tokens that occur, read from a checkpoint one by one.

Of 250,000 tokens of a multilingual encoder a text has a few thousand. Where the file is mapped into memory, each that
is read brings the pages around it, too, and so in the end all of them.
"""

import json
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

_TYPES = {"F32": (torch.float32, np.uint32), "F16": (torch.float16, np.uint16), "BF16": (torch.bfloat16, np.uint16)}


class EmbeddingRows(nn.Module):
    """Stands for an `nn.Embedding` that lies in a safetensors file; each row is read once, and kept.

    Args:
        path: the file. start: of the first row in it, in bytes. shape: rows and columns.
        stored: type in the file, as its header names it. dtype: that of the rows.
    """

    def __init__(self, path: Path, start: int, shape: tuple[int, int], stored: str, dtype: torch.dtype):
        super().__init__()
        self._stored, self._bits = _TYPES[stored]
        self._file, self._start, self._size = path.open("rb"), start, shape[1] * self._bits().itemsize
        self._places = torch.full((shape[0],), -1, dtype=torch.int32)
        self._rows, self._count = torch.empty(0, shape[1], dtype=dtype), 0

    def forward(self, ids: Tensor) -> Tensor:
        new = ids[self._places[ids] < 0].unique().tolist()
        if new:
            read = b"".join(os.pread(self._file.fileno(), self._size, self._start + self._size * row) for row in new)
            rows = torch.from_numpy(np.frombuffer(read, self._bits).copy()).view(self._stored).view(len(new), -1)
            if self._count + len(new) > len(self._rows):
                larger = self._rows.new_empty(2 * (self._count + len(new)), self._rows.shape[1])
                larger[: self._count] = self._rows[: self._count]
                self._rows = larger
            self._places[new] = torch.arange(self._count, self._count + len(new), dtype=torch.int32)
            self._rows[self._count : self._count + len(new)] = rows.to(self._rows.dtype)
            self._count += len(new)
        return self._rows[self._places[ids].long()]


def rows_in_file(path: Path | None, words: nn.Module, dtype: torch.dtype) -> EmbeddingRows | None:
    """Return what stands for the embeddings of words, or None where they are not as they lie in this file.

    Args:
        path: a safetensors file; None for none.
        words: they, loaded on the CPU. dtype: that of what is read.
    """
    if path is None or type(words) is not nn.Embedding or words.weight.device.type != "cpu":
        return None
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    shape = list(words.weight.shape)
    tried = torch.tensor([0, shape[0] // 2, shape[0] - 1])
    for name, entry in header.items():
        if name != "__metadata__" and entry["shape"] == shape and entry["dtype"] in _TYPES:
            start = 8 + size + entry["data_offsets"][0]
            exact = EmbeddingRows(path, start, tuple(shape), entry["dtype"], words.weight.dtype)
            if torch.equal(exact(tried), words.weight[tried]):
                return EmbeddingRows(path, start, tuple(shape), entry["dtype"], dtype)
    return None
