"""States of a multilingual encoder (BERT, XLM-R, ...), or of an encoder-decoder's encoder, for the words of a text.

Each side is encoded separately, with the special tokens and the language code of the tokenizer.
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
    """Special tokens and language code before and after a text."""

    before: np.ndarray
    after: np.ndarray


class EncoderReader:
    """Reader of the states of an encoder, for text of both sides.

    A text with more tokens than the encoder has positions is read in overlapping windows. The state of a token comes
    from the window in which it is farthest from an end.

    Args:
        model: Encoder, or a model with one; its mode is kept.
        tokenizer: Tokenizer of the model.
        languages: Codes of source and target, for a tokenizer with language codes ("en" of M2M100, "eng_Latn" of NLLB,
            "en_XX" of mBART). Default: (None, None).

    Raises:
        ValueError: language codes that are missing, unknown, or given to a tokenizer without them; an encoder whose
            vocabulary does not cover the target.
    """

    def __init__(self, model, tokenizer, languages: tuple[str | None, str | None] = (None, None)):
        if getattr(tokenizer, "separate_vocabs", False):
            raise ValueError(
                "The encoder cannot read the target: its tokenizer has a separate vocabulary for it "
                "(`separate_vocabs`). Choose another encoder."
            )
        self.model, self.tokenizer = model, tokenizer
        self.encoder = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
        candidates = (model.config.pad_token_id, tokenizer.pad_token_id)
        self.padding = next((token for token in candidates if token is not None), 0)
        # Marian segments target text with another model. The encoder shares the embeddings of these tokens with the
        # decoder, which was trained on them; source segmentation would produce pieces that neither was trained on.
        self.two_segmentations = hasattr(tokenizer, "spm_target")
        self.frames = tuple(self._frame(*each) for each in zip(languages, SIDES, strict=True))

    def _frame(self, language: str | None, side: str) -> Frame:
        name, option = type(self.tokenizer).__name__, f"`languages` of the {side}"
        if not hasattr(self.tokenizer, "src_lang"):
            if language is not None:
                raise ValueError(
                    f"{option} must be left out for {name}, which has no language codes, got {language!r}."
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
        """Return the tokens of a text without and with special tokens."""
        return tuple(self.tokenizer("1 a .", add_special_tokens=special)["input_ids"] for special in (False, True))

    @cached_property
    def size(self) -> int | None:
        """Maximum number of text tokens per window; None for no limit.

        Raises:
            ValueError: an encoder with fewer positions than special tokens.
        """
        config = self.model.config
        limit = getattr(config, "max_position_embeddings", None)
        if limit is None or limit < 1:  # relative positions; -1 in some configurations
            return None
        table = getattr(getattr(self.encoder, "embeddings", None), "position_embeddings", None)
        first = getattr(table, "padding_idx", None)
        if first is not None:  # positions of RoBERTa start after the padding index
            limit -= first + 1
        limit = min(limit, self.tokenizer.model_max_length)
        size = limit - max(len(frame.before) + len(frame.after) for frame in self.frames)
        if size < 1:
            raise ValueError(f"The encoder needs more positions than special tokens, got {limit}. Choose another one.")
        return size

    def tokenize(self, texts: Sequence[str], side: int) -> list[WordTokens]:
        """Tokenise texts without special tokens; `side` is 0 for source, 1 for target."""
        return tokenize_words(
            self.tokenizer, texts, target=bool(side) and self.two_segmentations, special_tokens=False
        )

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Return the input of the first layer and the output of each layer, (batch, length, size) each.

        Raises:
            ValueError: an encoder that does not return the states of its layers.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        inputs = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
        outputs = self.encoder(**inputs, output_hidden_states=True, return_dict=True)
        states = getattr(outputs, "hidden_states", None)
        if not states or any(layer is None or layer.shape[:2] != input_ids.shape for layer in states):
            raise ValueError(
                f"The encoder of a model of type {self.model.config.model_type!r} returned no states of its layers "
                "(`output_hidden_states`). Use a Transformer such as BERT, XLM-R, Marian, BART or M2M100."
            )
        return tuple(states)

    def states(self, ids: Sequence[np.ndarray], side: int) -> tuple[Tensor, ...]:
        """Return the states of the tokens in each layer, (batch, longest text, size), arbitrary at padding.

        Args:
            ids: Token ids of at least one text; no text is empty.
            side: 0 for source, 1 for target.
        """
        before, after = self.frames[side]
        parts = [
            (row, part)
            for row, tokens in enumerate(ids)
            for part in window_slices(len(tokens), self.size or len(tokens))
        ]
        batch = padded([np.concatenate([before, ids[row][part], after]) for row, part in parts], self.padding)
        layers = [layer[:, len(before) :] for layer in self.hidden_states(*batch)]
        longest = max(map(len, ids))
        if len(parts) == len(ids):
            return tuple(layer[:, :longest] for layer in layers)
        window, place = _best_windows(parts, [len(tokens) for tokens in ids], longest)
        return tuple(layer[window, place] for layer in layers)


def _best_windows(parts: Sequence[tuple[int, slice]], lengths: Sequence[int], longest: int) -> tuple[Tensor, Tensor]:
    """Return the best window of each token, and its position there, (texts, longest) each."""
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
    """Return evenly spread windows of at most `size` positions that cover `length` positions.

    Neighbouring windows overlap by at least a quarter (if `size` > 1).
    """
    if length <= size:
        return [slice(0, length)]
    stride = max(1, size - -(-size // 4))
    steps = -(-(length - size) // stride)
    starts = [step * (length - size) // steps for step in range(steps + 1)]
    return [slice(start, start + size) for start in starts]


# ---- embeddings in a file ----


class EmbeddingRows(nn.Module):
    """Embedding whose rows are read from a safetensors file when they are first needed.

    A text has a few thousand of the 250,000 tokens of a multilingual encoder. A memory-mapped file would load the
    pages around each row, and so in the end all rows.

    Args:
        path: Safetensors file.
        start: Position of the first row, in bytes.
        shape: Numbers of rows and columns.
        stored: Type in the header of the file.
        dtype: Type of the returned rows.
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
            stored = b"".join(os.pread(self._file.fileno(), self._size, self._start + self._size * row) for row in new)
            rows = torch.from_numpy(np.frombuffer(stored, self._bits).copy()).view(self._stored).view(len(new), -1)
            if self._count + len(new) > len(self._rows):
                larger = self._rows.new_empty(2 * (self._count + len(new)), self._rows.shape[1])
                larger[: self._count] = self._rows[: self._count]
                self._rows = larger
            self._places[new] = torch.arange(self._count, self._count + len(new), dtype=torch.int32)
            self._rows[self._count : self._count + len(new)] = rows.to(self._rows.dtype)
            self._count += len(new)
        return self._rows[self._places[ids].long()]


def rows_in_file(path: Path | None, words: nn.Module, dtype: torch.dtype) -> EmbeddingRows | None:
    """Return `EmbeddingRows` for word embeddings; None if the file does not have the same values.

    Args:
        path: Safetensors file, or None.
        words: Word embeddings on the CPU.
        dtype: Type of the returned rows.
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
