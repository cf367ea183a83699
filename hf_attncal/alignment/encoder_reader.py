"""The states of a multilingual encoder (BERT, XLM-R, ...), or of an encoder-decoder's, for the words of a text.

Each side is encoded by itself, with the special tokens and the language code that the tokenizer puts around a text.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hf_attncal.data.batching import padded
from hf_attncal.data.words import WordTokens, tokenize_words

SIDES = ("source", "target")
_TYPES: dict[str, tuple[torch.dtype, np.dtype]] = {
    "F32": (torch.float32, np.dtype(np.uint32)),
    "F16": (torch.float16, np.dtype(np.uint16)),
    "BF16": (torch.bfloat16, np.dtype(np.uint16)),
}


class Frame(NamedTuple):
    """Tokens that an encoder reads before and after those of a text: special ones and a language code."""

    before: np.ndarray
    after: np.ndarray


class EncoderReader:
    """An encoder, and how text of each side is given to it.

    A text whose tokens are more than the encoder has positions for is read in overlapping windows; each token's state
    is that of the window in which it has most on its nearer side.

    Args:
        model: an encoder, or a model with one; its mode is left as it is.
        tokenizer: its tokenizer.
        languages: codes of source and target, for a tokenizer that puts one beside each text ("en" of M2M100,
            "eng_Latn" of NLLB, "en_XX" of mBART).

    Raises:
        ValueError: languages that are missing, not known to the tokenizer, or given to one that has none; an encoder
            whose vocabulary has no target text.
    """

    def __init__(self, model, tokenizer, languages: tuple[str | None, str | None] = (None, None)):
        if getattr(tokenizer, "separate_vocabs", False):
            raise ValueError(
                "The tokenizer has a vocabulary for each language (`separate_vocabs`), and the encoder that of the "
                "source alone: it cannot read the target. Take another encoder."
            )
        self.model, self.tokenizer = model, tokenizer
        self.encoder = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
        known = (model.config.pad_token_id, tokenizer.pad_token_id)
        self.padding = next((number for number in known if number is not None), 0)
        # Marian segments target text by a model of its own. Both sides have one vocabulary, so what its decoder has
        # learned to write are the tokens whose embeddings the encoder shares; source segmentation would cut the
        # target text into pieces that neither has ever seen.
        self.two_segmentations = hasattr(tokenizer, "spm_target")
        self.frames = tuple(self._frame(*each) for each in zip(languages, SIDES, strict=True))

    def _frame(self, language: str | None, side: str) -> Frame:
        name, option = type(self.tokenizer).__name__, f"`languages` of the {side}"
        if not hasattr(self.tokenizer, "src_lang"):
            if language is not None:
                raise ValueError(
                    f"{option} is for tokenizers with language codes, and {name} has none, got {language!r}. Leave it "
                    "out."
                )
            inner, whole = self._with_and_without()
        else:
            before, inner, whole = self.tokenizer.src_lang, [], []
            if language is not None:
                with suppress(KeyError):
                    self.tokenizer.src_lang = language
                    inner, whole = self._with_and_without()
                self.tokenizer.src_lang = before
            added = Counter(whole) - Counter(inner)
            if not whole or added[self.tokenizer.unk_token_id]:
                raise ValueError(
                    f"{option} must be a code of {name}, such as 'en' of M2M100, 'eng_Latn' of NLLB or 'en_XX' of "
                    f"mBART, got {language!r}."
                )
        start = next(n for n in range(len(whole)) if whole[n : n + len(inner)] == inner)
        ends = whole[:start], whole[start + len(inner) :]
        return Frame(*(np.array(ids, dtype=np.int64) for ids in ends))

    def _with_and_without(self) -> tuple[list[int], list[int]]:
        """Return some text without special tokens, and with them."""
        return tuple(self.tokenizer("1 a .", add_special_tokens=special)["input_ids"] for special in (False, True))

    @cached_property
    def size(self) -> int | None:
        """The most tokens of a text that are read at once; None for no limit.

        Raises:
            ValueError: the encoder has no room for any.
        """
        config = self.model.config
        limit = getattr(config, "max_position_embeddings", None)
        if limit is None or limit < 1:  # relative positions; -1 in some configurations
            return None
        table = getattr(getattr(self.encoder, "embeddings", None), "position_embeddings", None)
        first = getattr(table, "padding_idx", None)
        if first is not None:  # RoBERTa counts from behind the number of padding
            limit -= first + 1
        limit = min(limit, self.tokenizer.model_max_length)
        size = limit - max(len(frame.before) + len(frame.after) for frame in self.frames)
        if size < 1:
            raise ValueError(f"The encoder has {limit} positions, and no room for a text beside its special tokens.")
        return size

    def tokenize(self, texts: Sequence[str], side: int) -> list[WordTokens]:
        """Return the tokens of each text, without special ones; `side` is 0 for source, 1 for target."""
        return tokenize_words(
            self.tokenizer, texts, target=bool(side) and self.two_segmentations, special_tokens=False
        )

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Return the input of the first layer and the output of each layer, (batch, length, size) each.

        Raises:
            ValueError: the encoder returns none.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        inputs = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
        outputs = self.encoder(**inputs, output_hidden_states=True, return_dict=True)
        found = getattr(outputs, "hidden_states", None)
        if not found or any(layer is None or layer.shape[:2] != input_ids.shape for layer in found):
            raise ValueError(
                f"The encoder of a model of type {self.model.config.model_type!r} returned no states of its layers "
                "(`output_hidden_states`). Take a Transformer, such as BERT, XLM-R, Marian, BART or M2M100."
            )
        return tuple(found)

    def states(self, ids: Sequence[np.ndarray], side: int) -> tuple[Tensor, ...]:
        """Return the states of the tokens in every layer, (batch, longest text, size); anything at padding.

        Args:
            ids: of `tokenize`, at least one text, none of them empty.
            side: 0 for source, 1 for target.
        """
        before, after = self.frames[side]
        parts = [
            (row, part)
            for row, tokens in enumerate(ids)
            for part in window_slices(len(tokens), self.size or len(tokens))
        ]
        read = padded([np.concatenate([before, ids[row][part], after]) for row, part in parts], self.padding)
        found = [layer[:, len(before) :] for layer in self.hidden_states(*read)]
        longest = max(map(len, ids))
        if len(parts) == len(ids):
            return tuple(layer[:, :longest] for layer in found)
        window, place = _best_windows(parts, [len(tokens) for tokens in ids], longest)
        return tuple(layer[window, place] for layer in found)


def _best_windows(parts: Sequence[tuple[int, slice]], lengths: Sequence[int], longest: int) -> tuple[Tensor, Tensor]:
    """Return the window to take the state of each token from, and its place there; (texts, longest) each."""
    window, place = torch.zeros(2, len(lengths), longest, dtype=torch.long)
    margin = torch.full((len(lengths), longest), -1)
    for number, (row, part) in enumerate(parts):
        places = torch.arange(part.stop - part.start)
        near = torch.minimum(places, places.flip(0))
        better = near > margin[row, part]
        window[row, part] = torch.where(better, number, window[row, part])
        place[row, part] = torch.where(better, places, place[row, part])
        margin[row, part] = torch.maximum(near, margin[row, part])
    return window, place


def window_slices(length: int, size: int) -> list[slice]:
    """Return windows of at most `size` positions that cover `length` positions, evenly spread.

    Neighbours share at least a quarter of a window (where `size` > 1).
    """
    if length <= size:
        return [slice(0, length)]
    stride = max(1, size - -(-size // 4))
    steps = -(-(length - size) // stride)
    starts = [step * (length - size) // steps for step in range(steps + 1)]
    return [slice(start, start + size) for start in starts]


# ---- embeddings in a file ----


class EmbeddingRows(nn.Module):
    """An `nn.Embedding` whose rows are read from a safetensors file when they are needed, each once.

    Of the 250,000 tokens of a multilingual encoder a text has a few thousand. A file that is mapped into memory brings
    the pages around each row, too, and so in the end all of them.

    Args:
        path: the file. start: of the first row in it, in bytes. shape: rows and columns.
        stored: type in the file, as its header names it. dtype: that of the rows.
    """

    def __init__(self, path: Path, start: int, shape: tuple[int, int], stored: str, dtype: torch.dtype):
        super().__init__()
        self._stored, self._bits = _TYPES[stored]
        self._file, self._start, self._size = path.open("rb"), start, shape[1] * self._bits.itemsize
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
    rows, columns = words.weight.shape
    tried = torch.tensor([0, rows // 2, rows - 1])
    for name, entry in header.items():
        if name != "__metadata__" and entry["shape"] == [rows, columns] and entry["dtype"] in _TYPES:
            start = 8 + size + entry["data_offsets"][0]
            exact = EmbeddingRows(path, start, (rows, columns), entry["dtype"], words.weight.dtype)
            if torch.equal(exact(tried), words.weight[tried]):
                return EmbeddingRows(path, start, (rows, columns), entry["dtype"], dtype)
    return None
