"""A multilingual encoder (BERT, XLM-R, ...), opened up to one layer, and the states of its tokens for a text."""

import json
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel

from hf_attncal.data.batching import padded
from hf_attncal.inference.files import file_beside
from hf_attncal.inference.loading import load_whole
from hf_attncal.inference.opening import bf16_is_fast, choose_device, load_errors
from hf_attncal.inference.running import Running
from hf_attncal.layouts import AUTO_ENCODER, DEFAULT_ENCODER, WEIGHTS
from hf_attncal.models.loading import check_finite

from .aligner_opening import name_of_encoder

_HEIGHT = 0.6  # share of the layers to run: the 7th of 12 has a lower AER than the 8th on every dev set
# oneDNN keeps the compiled kernels of the last 1,024 shapes, half a megabyte each. Batches of a text rarely have the
# same shapes. (Training is slower with this number.)
_KERNELS_IN_MEMORY = "64"

_TYPES: dict[str, tuple[torch.dtype, np.dtype]] = {
    "F32": (torch.float32, np.dtype(np.uint32)),
    "F16": (torch.float16, np.dtype(np.uint16)),
    "BF16": (torch.bfloat16, np.dtype(np.uint16)),
}


class EncoderReader:
    """Reader of the states of an encoder.

    A text with more tokens than the encoder has positions is read in overlapping windows. The state of a token comes
    from the window in which it is farthest from an end.

    Args:
        model: Encoder, or a model with one; its mode is kept.
        tokenizer: Tokenizer of the model.

    Attributes:
        before, after: Special tokens around a text.

    Raises:
        ValueError: an encoder-decoder.
    """

    def __init__(self, model, tokenizer):
        if model.config.is_encoder_decoder:
            raise ValueError(
                f"The encoder must be one such as BERT or XLM-R, got an encoder-decoder ({model.config.model_type!r})."
            )
        self.model, self.tokenizer, self.encoder = model, tokenizer, model.base_model
        candidates = (model.config.pad_token_id, tokenizer.pad_token_id)
        self.padding = next((token for token in candidates if token is not None), 0)
        inner, whole = (tokenizer("1 a .", add_special_tokens=special)["input_ids"] for special in (False, True))
        start = next(n for n in range(len(whole)) if whole[n : n + len(inner)] == inner)
        ends = whole[:start], whole[start + len(inner) :]
        self.before, self.after = (np.array(ids, dtype=np.int64) for ids in ends)

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
        size = limit - len(self.before) - len(self.after)
        if size < 1:
            raise ValueError(f"The encoder needs more positions than special tokens, got {limit}. Choose another one.")
        return size

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
                "(`output_hidden_states`). Use a Transformer such as BERT or XLM-R."
            )
        return tuple(states)

    def states(self, ids: Sequence[np.ndarray]) -> tuple[Tensor, ...]:
        """Return the states of the tokens in each layer, (batch, longest text, size), arbitrary at padding.

        Args:
            ids: Token ids of at least one text; no text is empty.
        """
        parts = [
            (row, part)
            for row, tokens in enumerate(ids)
            for part in window_slices(len(tokens), self.size or len(tokens))
        ]
        whole = [np.concatenate([self.before, ids[row][part], self.after]) for row, part in parts]
        layers = [layer[:, len(self.before) :] for layer in self.hidden_states(*padded(whole, self.padding))]
        longest = max(map(len, ids))
        if len(parts) == len(ids):
            return tuple(layer[:, :longest] for layer in layers)
        window, place = _best_windows(parts, [len(tokens) for tokens in ids], longest)
        return tuple(layer[window, place] for layer in layers)

    def states_by_length(
        self, ids: Sequence[np.ndarray], layer: int, batch_tokens: int
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield the index of each text and the states of its tokens in a layer, (tokens, size), longest first.

        Args:
            ids: Token ids of each text; the states of an empty text are (0, 1).
            layer: Layer to read.
            batch_tokens: Maximum number of tokens per batch, including padding; a longer text is its own batch.
        """
        order = sorted(range(len(ids)), key=lambda n: -len(ids[n]))
        while order:
            number = max(1, batch_tokens // (len(ids[order[0]]) + len(self.before) + len(self.after)))
            batch, order = order[:number], order[number:]
            full = [ids[n] for n in batch if len(ids[n])]
            states = self.states(full)[layer].cpu() if full else None
            for row, n in enumerate(batch):
                yield n, torch.zeros(0, 1) if states is None or not len(ids[n]) else states[row, : len(ids[n])]


class EncoderLayer:
    """A layer of a pretrained encoder, without the layers above it.

    Args:
        model: Encoder, or a model with one. Layers above `layer` are removed, the others are converted to `dtype`.
        tokenizer: Tokenizer of the model.
        layer: 0 for the input of the first layer, n for the output of the nth; negative numbers count from the top.
            Default: None, `default_layer`.
        dtype: Type of the layers. Default: None, bfloat16 if the processor multiplies it fast.

    Attributes:
        adapted: True if the weights were adapted to word alignment, which only `EncoderPrior` does.

    Raises:
        ValueError: see `EncoderReader`; also an unknown layer.
    """

    def __init__(self, model, tokenizer, layer: int | None = None, dtype: torch.dtype | None = None):
        self.reader = EncoderReader(model.eval(), tokenizer)
        if dtype is None and model.device.type == "cpu" and bf16_is_fast():
            dtype = torch.bfloat16
        self.dtype = dtype or model.dtype
        self.layer = lowered(self.reader, default_layer(model) if layer is None else layer, dtype)
        self.adapted = False

    @classmethod
    def open(cls, encoder: Any, running: Running) -> Any:
        """Load an encoder by name.

        Args:
            encoder: Folder or Hub name, or "auto" for the default; a loaded one or None is returned unchanged.
            running: Device and other options of the run, except `dtype` and `revision`.

        Raises:
            CommandError: an encoder that cannot be loaded or is of another kind.
        """
        if encoder is None or not isinstance(encoder, str | os.PathLike):
            return encoder
        name = name_of_encoder(encoder)
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _KERNELS_IN_MEMORY)  # read at the first product
        with load_errors(name):
            device = choose_device(running)
            return cls.from_pretrained(name, device=device, trust_remote_code=running.trust_remote_code)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = DEFAULT_ENCODER[0],
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        adapted: bool = True,
    ) -> Self:
        """Load an encoder from a folder or the Hub; see `WordAligner.from_pretrained` for the other arguments.

        Args:
            adapted: Adapt the weights of the default encoder to word alignment, if the class does. Default: True.

        Raises:
            OSError, ValueError: a missing encoder, or see the class.
        """
        if name == AUTO_ENCODER:
            name = DEFAULT_ENCODER[0]
        if name == DEFAULT_ENCODER[0] and revision is None and not Path(name).is_dir():
            revision = DEFAULT_ENCODER[1]
        model, tokenizer = load_whole(
            AutoModel, name, finite=False, trust_remote_code=trust_remote_code, revision=revision
        )
        layer = default_layer(model)
        was_adapted = adapted and cls.adapt(model.base_model, layer)
        encoder = cls(model.to(device), tokenizer, layer, dtype)
        encoder.adapted = was_adapted
        words = encoder.reader.encoder.get_input_embeddings()
        rows = rows_in_file(file_beside(name, WEIGHTS, revision), words, encoder.dtype)
        if rows is not None:
            encoder.reader.encoder.set_input_embeddings(rows)
        return encoder

    @staticmethod
    def adapt(encoder, layer: int) -> bool:
        """Adapt the weights of an encoder of which a layer will be read; return whether that was done."""
        return False


def default_layer(model) -> int:
    """Return the default layer: three fifths of the way up."""
    return round(_HEIGHT * model.config.get_text_config().num_hidden_layers)


def lowered(reader: EncoderReader, layer: int, dtype: torch.dtype | None = None) -> int:
    """Remove the layers above one from an encoder, convert the others to `dtype`, and return the layer, from 0.

    The word embeddings are not converted, because they are read from the file as needed.

    Raises:
        ValueError: an unknown layer, or weights that are not finite.
    """
    count = reader.model.config.get_text_config().num_hidden_layers
    if not -count <= layer + (layer < 0) <= count:
        raise ValueError(f"`layer` must be from {-count - 1} to {count} of the encoder, got {layer}.")
    layer += (count + 1) * (layer < 0)
    encoder = reader.encoder
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            del module[max(layer, 1) :]  # layer 0 is the input of the first layer
            break
    words = encoder.get_input_embeddings()
    for module in encoder.children() if dtype is not None else ():
        if module is words:
            continue
        if words not in module.modules():
            module.to(dtype)
            continue
        for part in module.children():
            if part is not words:
                part.to(dtype)
    if dtype is not None:
        words.register_forward_hook(lambda _, __, states: states.to(dtype))
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList):
            check_finite(module)
    return layer


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
    """Embedding whose rows are read from a safetensors file for each batch.

    A batch has a thousand of the 250,000 tokens of a multilingual encoder. A memory-mapped file would load the pages
    around each row, and so in the end all rows.

    Args:
        path: Safetensors file.
        start: Position of the first row, in bytes.
        columns: Number of columns.
        stored: Type in the header of the file.
        dtype: Type of the returned rows.
    """

    def __init__(self, path: Path, start: int, columns: int, stored: str, dtype: torch.dtype):
        super().__init__()
        (self._stored, self._bits), self._dtype = _TYPES[stored], dtype
        self._file, self._start, self._columns = path.open("rb"), start, columns

    def forward(self, ids: Tensor) -> Tensor:
        tokens, places = ids.unique(return_inverse=True)
        size = self._columns * self._bits.itemsize
        stored = b"".join(os.pread(self._file.fileno(), size, self._start + size * token) for token in tokens.tolist())
        rows = torch.from_numpy(np.frombuffer(stored, self._bits).copy()).view(self._stored).view(-1, self._columns)
        return rows.to(self._dtype)[places]


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
            exact = EmbeddingRows(path, start, columns, entry["dtype"], words.weight.dtype)
            if torch.equal(exact(tried), words.weight[tried]):
                return EmbeddingRows(path, start, columns, entry["dtype"], dtype)
    return None
