"""Import Marian's small models, such as Firefox's, as `SSRUForConditionalGeneration`.

A file has weights in float32 or as 8-bit integers, and a configuration. Its parts are a version, the number of
tensors, a header of four numbers per tensor (length of its name, type, number of dimensions, bytes), all names, all
shapes, padding, and the data.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hf_attncal.io.errors import CommandError, UnreadableError, one_line
from hf_attncal.io.files import load_yaml

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

POSITIONS = 4096  # maximum length in tokens, for memory: positions are computed, so the file has no limit
_MAX_LENGTH = 512  # default of `generate`, in tokens
_PADDING_LOGIT = -9999.0  # padding must not be generated
_CELL = "ssru"  # Marian's name of the recurrent unit
# Settings with the only value, or values, that can be imported; it is also the value of a missing setting.
_ONLY_VALUES = {
    "type": "transformer",
    "transformer-decoder-autoreg": "rnn",
    "dec-cell": _CELL,
    "tied-embeddings-all": True,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-train-position-embeddings": False,
    "transformer-no-projection": False,
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "transformer-pool": False,
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": (0, 2),
    "right-left": False,
    "skip": False,
    "ulr": False,
    "lemma-dim-emb": 0,
    "input-types": [],
}
_ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "gelu"}
_VERSION = 1
_SHORTLIST = 0xF11A48D5013417F5
# Types of Marian: size in bytes, and flags for signed 0x100, float 0x400, intgemm 0x4000.
_FLOAT32, _INTGEMM8 = 0x404, 0x4101
_SETTINGS = "special:"  # prefix of the configuration's name
_ALPHA = "_QuantMultA"  # suffix of the names of activations' quantisation factors, which floats do not need
_MAX_TENSORS = 1_000_000
_SIZES = ("dim-emb", "enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn")


class MarianFile(NamedTuple):
    """Contents of a file.

    Args:
        weights: weights in float32 by Marian's names, a matrix as (inputs, outputs); without quantisation factors.
        settings: configuration by Marian's names, such as `dim-emb`.
    """

    weights: dict[str, np.ndarray]
    settings: dict[str, Any]


def import_folder(folder: Path) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase", int]:
    """Import a folder with a Marian model (`*.bin`), its vocabulary (`*.spm`) and perhaps its shortlist (`lex.*.bin`).

    Returns:
        An `SSRUForConditionalGeneration`, its tokenizer, and the number of the decoder layer whose first head was
        trained on word links, from 0.

    Raises:
        CommandError: the folder does not have exactly one model and one vocabulary, a file cannot be read, or the
            model has another architecture. The message names the file, and the setting and its value.
    """
    model_file, vocabulary = _files(folder)
    from hf_attncal.data.spm import spm_tokenizer

    try:
        marian = read_marian(model_file)
        values = configuration_of(marian.settings)
        weights = dict(_weights(marian, values))
    except UnreadableError as error:
        raise CommandError(f"{model_file} {error}.") from error
    try:
        tokenizer = spm_tokenizer(vocabulary, POSITIONS)
    except UnreadableError as error:
        raise CommandError(f"{vocabulary} {error}.") from error
    if len(tokenizer) != values["vocab_size"]:
        raise CommandError(
            f"{vocabulary} has {len(tokenizer) - 1} pieces, but the model in {model_file} has "
            f"{values['vocab_size'] - 1}. Put the vocabulary of the model's training into the folder."
        )
    model = _model(values, weights | _shortlist(folder, values), tokenizer)
    return model, tokenizer, _guided_layer(marian.settings)


def facts_of_name(folder: Path) -> dict[str, Any]:
    """Return languages and license that the names of a model's files state, as arguments of `write_model_card`.

    Mozilla names its models `model.enpt.intgemm.alphas.bin`, and publishes them under the MPL 2.0.
    """
    name = re.fullmatch(r"model\.([a-z]{2})([a-z]{2})\.intgemm(\.alphas)?\.bin", _files(folder)[0].name)
    return {} if name is None else {"languages": name.groups()[:2], "license": "mpl-2.0"}


def _files(folder: Path) -> tuple[Path, Path]:
    if not folder.is_dir():
        raise CommandError(f"{folder} must be a folder with a Marian model (*.bin) and its vocabulary (*.spm).")
    paths = []
    for what, pattern in (("model", "*.bin"), ("vocabulary", "*.spm")):
        files = [path for path in sorted(folder.glob(pattern)) if not path.name.startswith("lex.")]
        if len(files) != 1:
            names = ", ".join(path.name for path in files[:3]) or "none; unpack *.gz first"
            raise CommandError(
                f"{folder} must have exactly one Marian {what} ({pattern}), got {names}. Models with two vocabularies "
                "cannot be imported."
            )
        paths += files
    return paths[0], paths[1]


def _shortlist(folder: Path, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the buffers of the shortlist beside a model, and put its sizes into the model's configuration `values`.

    A file has its sign, a checksum, the number of first tokens that are on every list, the length of a list, the
    number of offsets (one more than source tokens) and of tokens in all lists; then the offsets and the tokens.
    """
    paths = sorted(folder.glob("lex.*.bin"))
    if not paths:
        return {}
    data, vocabulary = paths[0].read_bytes(), values["vocab_size"] - 1
    sign, _, first, _, count, size = struct.unpack_from("<6Q", data.ljust(48, b"\0"))
    if len(paths) > 1 or sign != _SHORTLIST or count != vocabulary + 1 or len(data) != 48 + 8 * count + 4 * size:
        raise CommandError(
            f"{paths[-1]} is no shortlist for {vocabulary} pieces. Take the lex.*.bin of this model, or put it "
            "elsewhere: it is not needed."
        )
    offsets = np.frombuffer(data, "<u8", count, 48).astype(np.int64)
    tokens = np.frombuffer(data, "<u4", size, 48 + 8 * count)
    if (
        offsets[0]
        or offsets[-1] != size
        or np.diff(offsets).min() < 0
        or max(first, tokens.max(initial=0)) >= vocabulary
    ):
        raise CommandError(f"{paths[0]} is damaged: its lists do not fit. Download it again.")
    values |= {"shortlist_size": size, "shortlist_first": first}
    ends = np.append(offsets[1:], size)  # padding has no list
    return {"shortlist_ends": ends.astype(np.int32), "shortlist_tokens": tokens.astype(np.int32)}


def configuration_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an `SSRUConfig` for the settings of a Marian model.

    Raises:
        UnreadableError: the model has another architecture; the message names the setting and its value.
    """
    for name, only in _ONLY_VALUES.items():
        value, allowed = settings.get(name, only), only if isinstance(only, tuple) else (only,)
        if value not in allowed and value is not only:
            raise UnreadableError(
                f"is of another architecture: `{name}` must be {' or '.join(map(repr, allowed))}, got {value!r:.60}"
            )
    for name in _SIZES:
        value = settings.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 100_000:
            raise UnreadableError(f"is damaged: `{name}` must be a whole number > 0, got {value!r:.60}")
    activation = settings.get("transformer-ffn-activation", "swish")
    if activation not in _ACTIVATIONS:
        raise UnreadableError(
            f"is of another architecture: `transformer-ffn-activation` must be {' or '.join(_ACTIVATIONS)}, got "
            f"{activation!r:.60}"
        )
    sizes = settings.get("dim-vocabs")
    if not isinstance(sizes, list) or len(set(map(str, sizes))) != 1 or not isinstance(sizes[0], int):
        raise UnreadableError(f"must have one vocabulary for both sides (`dim-vocabs`), got {sizes!r:.60}")
    heads, inner = settings["transformer-heads"], settings["transformer-dim-ffn"]
    if settings["dim-emb"] % heads:
        raise UnreadableError(
            f"is damaged: `dim-emb` must be a multiple of `transformer-heads`, got {settings['dim-emb']} and {heads}"
        )
    return {
        "vocab_size": sizes[0] + 1,
        "d_model": settings["dim-emb"],
        "encoder_layers": settings["enc-depth"],
        "decoder_layers": settings["dec-depth"],
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": settings.get("transformer-decoder-dim-ffn") or inner,
        "activation_function": _ACTIVATIONS[activation],
        "scale_embedding": True,
        "max_position_embeddings": POSITIONS,
        "dropout": 0.0,  # small students are trained without dropout
        "pad_token_id": sizes[0],
        "decoder_start_token_id": sizes[0],
    }


def _guided_layer(settings: dict[str, Any]) -> int:
    layer, last = settings.get("transformer-guided-alignment-layer", "last"), settings["dec-depth"] - 1
    return int(layer) - 1 if str(layer).isdigit() and 0 < int(layer) <= last + 1 else last


def _weights(marian: MarianFile, values: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield our name and the values of each weight; check that no weight is missing, left over or of another shape."""
    remaining = dict(marian.weights)

    def take(name: str, *shape: int) -> np.ndarray:
        if name not in remaining:
            raise UnreadableError(f"lacks a weight of its configuration: `{name}`. Download it again")
        weight = remaining.pop(name)
        if weight.shape != shape:
            raise UnreadableError(
                f"is damaged: `{name}` must have shape {shape}, got {weight.shape}. Download it again"
            )
        return weight

    width, vocabulary = values["d_model"], values["vocab_size"] - 1

    def linear(our_name: str, weight: str, bias: str | None, inputs: int = width, outputs: int = width):
        yield f"{our_name}.weight", take(weight, inputs, outputs).T
        if bias is not None:
            yield f"{our_name}.bias", take(bias, 1, outputs)[0]

    def norm(our_name: str, marian_name: str):
        for name, part in (("weight", "scale"), ("bias", "bias")):
            yield f"{our_name}.{name}", take(f"{marian_name}_ln_{part}", 1, width)[0]

    def attention(our_name: str, marian_name: str):
        for name, part in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o")):
            yield from linear(f"{our_name}.{name}", f"{marian_name}_W{part}", f"{marian_name}_b{part}")
        yield from norm(f"{our_name}_layer_norm", f"{marian_name}_Wo")

    def feed(our_name: str, marian_name: str, inner: int):
        yield from linear(f"{our_name}.fc1", f"{marian_name}_W1", f"{marian_name}_b1", width, inner)
        yield from linear(f"{our_name}.fc2", f"{marian_name}_W2", f"{marian_name}_b2", inner, width)
        yield from norm(f"{our_name}.final_layer_norm", f"{marian_name}_ffn")

    # Marian's decoder starts with zeros. Here they are the embedding of padding, which is never generated.
    embedding = take("Wemb", vocabulary, width)
    yield "model.shared.weight", np.concatenate([embedding, np.zeros((1, width), np.float32)])
    bias = np.zeros((1, vocabulary), np.float32)
    if not marian.settings.get("output-omit-bias"):
        bias = take("decoder_ff_logit_out_b", 1, vocabulary)
    yield "final_logits_bias", np.concatenate([bias, [[np.float32(_PADDING_LOGIT)]]], axis=1)
    for number in range(values["encoder_layers"]):
        our_name, marian_name = f"model.encoder.layers.{number}", f"encoder_l{number + 1}"
        yield from attention(f"{our_name}.self_attn", f"{marian_name}_self")
        yield from feed(our_name, f"{marian_name}_ffn", values["encoder_ffn_dim"])
    for number in range(values["decoder_layers"]):
        our_name, marian_name = f"model.decoder.layers.{number}", f"decoder_l{number + 1}"
        yield from linear(f"{our_name}.self_attn.forget", f"{marian_name}_rnn_Wf", f"{marian_name}_rnn_bf")
        yield from linear(f"{our_name}.self_attn.candidate", f"{marian_name}_rnn_W", None)
        yield from norm(f"{our_name}.self_attn_layer_norm", f"{marian_name}_rnn_ffn")
        yield from attention(f"{our_name}.encoder_attn", f"{marian_name}_context")
        yield from feed(our_name, f"{marian_name}_ffn", values["decoder_ffn_dim"])
    if remaining:
        raise UnreadableError(f"is of another architecture: it has an unknown weight, `{min(remaining)}`")


def _model(values: dict[str, Any], weights: dict[str, np.ndarray], tokenizer) -> "PreTrainedModel":
    import torch
    from transformers import GenerationConfig

    from hf_attncal.models.configuration_attncal import SSRUConfig
    from hf_attncal.models.modeling_ssru import SSRUForConditionalGeneration

    end = tokenizer.eos_token_id
    config = SSRUConfig(**values, eos_token_id=end, forced_eos_token_id=end, unk_token_id=tokenizer.unk_token_id)
    model = SSRUForConditionalGeneration(config)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in weights.items()}
    model.load_state_dict(tensors, strict=False)  # positions are computed, embeddings are tied
    model.generation_config = GenerationConfig(
        max_length=_MAX_LENGTH,
        pad_token_id=config.pad_token_id,
        eos_token_id=end,
        forced_eos_token_id=end,
        decoder_start_token_id=config.decoder_start_token_id,
    )
    return model.eval()


# ---- the file ----


def read_marian(path: str | Path) -> MarianFile:
    """Read a file of Marian.

    Raises:
        UnreadableError: the file is not Marian's, is truncated or damaged, has weights of another type or no
            configuration.
    """
    data = Path(path).read_bytes()
    try:
        return _read(data)
    except UnreadableError:
        raise
    except (struct.error, ValueError, OverflowError, RecursionError) as error:
        raise UnreadableError(f"is damaged: {one_line(error)}. Download it again") from error


def _read(data: bytes) -> MarianFile:
    version, count = struct.unpack_from("<2Q", data)
    if version != _VERSION or not 0 < count <= _MAX_TENSORS:
        raise UnreadableError(
            f"is not a binary file of Marian: it must start with version {_VERSION}, got {version}. Convert an .npz "
            "file with marian-conv"
        )
    place = 16
    heads = [struct.unpack_from("<4Q", data, place + 32 * n) for n in range(count)]
    place += 32 * count
    names, shapes = [], []
    for length, *_ in heads:
        names.append(bytes(data[place : place + length]).rstrip(b"\0").decode("utf-8", "replace"))
        place += length
    for name, (_, _, dimensions, _) in zip(names, heads, strict=True):
        if dimensions > 8:
            raise UnreadableError(f"is damaged: `{name:.80}` has {dimensions} dimensions. Download it again")
        shapes.append(struct.unpack_from(f"<{dimensions}i", data, place))
        place += 4 * dimensions
    (padding,) = struct.unpack_from("<Q", data, place)
    place += 8 + padding
    weights: dict[str, np.ndarray] = {}
    settings = None
    for name, shape, (_, kind, _, size) in zip(names, shapes, heads, strict=True):
        if place + size > len(data):
            raise UnreadableError(f"is damaged: it ends within `{name:.80}`. Download it again")
        if name.startswith(_SETTINGS):
            settings = load_yaml(data[place : place + size].rstrip(b"\0").decode())
        elif not name.endswith(_ALPHA):
            weights[name] = _tensor(name, shape, kind, data[place : place + size])
        place += size
    if not isinstance(settings, dict):
        raise UnreadableError(
            "has no configuration (special:model.yml). Take a file written by Marian or its marian-conv"
        )
    return MarianFile(weights, settings)


def _tensor(name: str, shape: tuple[int, ...], kind: int, data: bytes) -> np.ndarray:
    number = int(np.prod(shape, dtype=np.float64))
    if kind not in (_FLOAT32, _INTGEMM8):
        raise UnreadableError(
            f"has weights of type {kind:#x} (`{name:.80}`), which is neither float32 nor intgemm8. Take the file from "
            "before it was packed for one kind of processor"
        )
    if kind == _FLOAT32:
        values = np.frombuffer(data, "<f4", number).reshape(shape).astype(np.float32)
    else:  # int8, then the factor; matrices are stored as (outputs, inputs), the embedding as it is
        (factor,) = struct.unpack_from("<f", data, number)
        with np.errstate(all="ignore"):
            values = np.frombuffer(data, np.int8, number).astype(np.float32) / np.float32(factor)
        values = values.reshape(shape) if name.endswith("Wemb") else values.reshape(shape[::-1]).T
    if not np.isfinite(values).all():
        raise UnreadableError(f"is damaged: `{name:.80}` has values that are not finite. Download it again")
    return np.ascontiguousarray(values)
