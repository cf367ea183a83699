"""Import Marian's small models, as Firefox has them, as a family of ours.

A file holds weights in float32 or as 8-bit integers, and a configuration: a version, the number of tensors, a head of
four numbers for each (length of its name, type, number of dimensions, bytes), all names, all shapes, padding, and the
data.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hf_attncal.io.errors import CommandError, UnreadableError, one_line
from hf_attncal.io.files import load_yaml

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

POSITIONS = 512  # longest text, in tokens; positions are computed, so the file has no limit of its own
_NEVER = -9999.0  # logit of padding, which is no word
_CELL = "ssru"  # as Marian calls it
# Settings of which one value is read, and that value; a setting that is not there has it.
_ONLY = {
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
# Types of Marian: size in bytes, and flags for signed 0x100, float 0x400, intgemm 0x4000.
_FLOAT32, _INTGEMM8 = 0x404, 0x4101
_SETTINGS = "special:"  # begins the name of the configuration
_ALPHA = "_QuantMultA"  # ends the name of what quantises activations, which floats do not need
_MOST = 1_000_000  # tensors, or numbers in a shape
_SIZES = ("dim-emb", "enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn")


class MarianFile(NamedTuple):
    """Contents of a file.

    Args:
        weights: float32, by Marian's names, a matrix as (inputs, outputs); without what quantises activations.
        settings: the configuration by its names, as `dim-emb`.
    """

    weights: dict[str, np.ndarray]
    settings: dict[str, Any]


def import_folder(folder: Path) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase", int]:
    """Read a folder with a model of Marian (`*.bin`) and its vocabulary (`*.spm`).

    Returns:
        An `SSRUForConditionalGeneration`, its tokenizer, and the number of the decoder layer whose first head was
        trained on word links, from 0.

    Raises:
        CommandError: not one model and one vocabulary; a file that cannot be read, or a model of another architecture.
            The message names the file, and the setting and its value.
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
            f"{vocabulary} has {len(tokenizer) - 1} pieces, and the model in {model_file} has "
            f"{values['vocab_size'] - 1}. Give each model the vocabulary it was trained with."
        )
    return _model(values, weights, tokenizer), tokenizer, _guided_layer(marian.settings)


def _files(folder: Path) -> tuple[Path, Path]:
    if not folder.is_dir():
        raise CommandError(f"{folder} must be a folder with a model of Marian (*.bin) and its vocabulary (*.spm).")
    found = []
    for what, pattern in (("model", "*.bin"), ("vocabulary", "*.spm")):
        # Beside the model lies a shortlist, which makes the search faster and is no part of it.
        files = [path for path in sorted(folder.glob(pattern)) if not path.name.startswith("lex.")]
        if len(files) != 1:
            names = ", ".join(path.name for path in files[:3]) or "none; unpack *.gz first"
            raise CommandError(
                f"{folder} must have one {what} of Marian, {pattern}, got {names}. Of a model with two vocabularies, "
                "or with several models, nothing can be imported."
            )
        found += files
    return found[0], found[1]


def configuration_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an `SSRUConfig` that the settings of a model of Marian mean.

    Raises:
        UnreadableError: another architecture; the message names the setting, its value and what is read.
    """
    for name, only in _ONLY.items():
        value, read = settings.get(name, only), only if isinstance(only, tuple) else (only,)
        if value not in read and value is not only:
            raise UnreadableError(
                f"is of another architecture: `{name}` must be {' or '.join(map(repr, read))}, got {value!r:.60}"
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
        "dropout": 0.0,  # small students are trained without, and are another model with it
        "pad_token_id": sizes[0],
        "decoder_start_token_id": sizes[0],
    }


def _guided_layer(settings: dict[str, Any]) -> int:
    layer, last = settings.get("transformer-guided-alignment-layer", "last"), settings["dec-depth"] - 1
    return int(layer) - 1 if str(layer).isdigit() and 0 < int(layer) <= last + 1 else last


def _weights(marian: MarianFile, values: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield our name and the values of each weight, and see that all are there, of the right shape, and no others."""
    left = dict(marian.weights)

    def take(name: str, *shape: int) -> np.ndarray:
        if name not in left:
            raise UnreadableError(f"lacks a weight that its configuration tells of: `{name}`. Download it anew")
        found = left.pop(name)
        if found.shape != shape:
            raise UnreadableError(f"is damaged: `{name}` must have shape {shape}, got {found.shape}. Download it anew")
        return found

    width, vocabulary = values["d_model"], values["vocab_size"] - 1

    def linear(ours: str, weight: str, bias: str | None, inputs: int = width, outputs: int = width):
        yield f"{ours}.weight", take(weight, inputs, outputs).T
        if bias is not None:
            yield f"{ours}.bias", take(bias, 1, outputs)[0]

    def norm(ours: str, theirs: str):
        for name, part in (("weight", "scale"), ("bias", "bias")):
            yield f"{ours}.{name}", take(f"{theirs}_ln_{part}", 1, width)[0]

    def attention(ours: str, theirs: str):
        for name, part in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o")):
            yield from linear(f"{ours}.{name}", f"{theirs}_W{part}", f"{theirs}_b{part}")
        yield from norm(f"{ours}_layer_norm", f"{theirs}_Wo")

    def feed(ours: str, theirs: str, inner: int):
        yield from linear(f"{ours}.fc1", f"{theirs}_W1", f"{theirs}_b1", width, inner)
        yield from linear(f"{ours}.fc2", f"{theirs}_W2", f"{theirs}_b2", inner, width)
        yield from norm(f"{ours}.final_layer_norm", f"{theirs}_ffn")

    # The decoder begins with zeros, which are the embedding of a token that is never written: padding.
    embedding = take("Wemb", vocabulary, width)
    yield "model.shared.weight", np.concatenate([embedding, np.zeros((1, width), np.float32)])
    bias = np.zeros((1, vocabulary), np.float32)
    if not marian.settings.get("output-omit-bias"):
        bias = take("decoder_ff_logit_out_b", 1, vocabulary)
    yield "final_logits_bias", np.concatenate([bias, [[np.float32(_NEVER)]]], axis=1)
    for number in range(values["encoder_layers"]):
        ours, theirs = f"model.encoder.layers.{number}", f"encoder_l{number + 1}"
        yield from attention(f"{ours}.self_attn", f"{theirs}_self")
        yield from feed(ours, f"{theirs}_ffn", values["encoder_ffn_dim"])
    for number in range(values["decoder_layers"]):
        ours, theirs = f"model.decoder.layers.{number}", f"decoder_l{number + 1}"
        yield from linear(f"{ours}.self_attn.forget", f"{theirs}_rnn_Wf", f"{theirs}_rnn_bf")
        yield from linear(f"{ours}.self_attn.candidate", f"{theirs}_rnn_W", None)
        yield from norm(f"{ours}.self_attn_layer_norm", f"{theirs}_rnn_ffn")
        yield from attention(f"{ours}.encoder_attn", f"{theirs}_context")
        yield from feed(ours, f"{theirs}_ffn", values["decoder_ffn_dim"])
    if left:
        raise UnreadableError(f"is of another architecture: it has a weight that is not read, `{min(left)}`")


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
        max_length=POSITIONS,
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
        UnreadableError: it is no such file, is cut off or damaged, has weights of another type or no configuration.
    """
    data = Path(path).read_bytes()
    try:
        return _read(data)
    except UnreadableError:
        raise
    except (struct.error, ValueError, OverflowError, RecursionError) as error:
        raise UnreadableError(f"is damaged: {one_line(error)}. Download it anew") from error


def _read(data: bytes) -> MarianFile:
    version, count = struct.unpack_from("<2Q", data)
    if version != _VERSION or not 0 < count <= _MOST:
        raise UnreadableError(
            f"is no binary file of Marian: it must begin with version {_VERSION}, got {version}. Marian's .npz is "
            "made one by marian-conv"
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
            raise UnreadableError(f"is damaged: `{name:.80}` has {dimensions} dimensions. Download it anew")
        shapes.append(struct.unpack_from(f"<{dimensions}i", data, place))
        place += 4 * dimensions
    (padding,) = struct.unpack_from("<Q", data, place)
    place += 8 + padding
    weights: dict[str, np.ndarray] = {}
    settings = None
    for name, shape, (_, kind, _, size) in zip(names, shapes, heads, strict=True):
        if place + size > len(data):
            raise UnreadableError(f"is damaged: it ends within `{name:.80}`. Download it anew")
        if name.startswith(_SETTINGS):
            settings = load_yaml(data[place : place + size].rstrip(b"\0").decode())
        elif not name.endswith(_ALPHA):
            weights[name] = _tensor(name, shape, kind, data[place : place + size])
        place += size
    if not isinstance(settings, dict):
        raise UnreadableError("has no configuration (special:model.yml), which says what model it is")
    return MarianFile(weights, settings)


def _tensor(name: str, shape: tuple[int, ...], kind: int, data: bytes) -> np.ndarray:
    number = int(np.prod(shape, dtype=np.float64))
    if kind not in (_FLOAT32, _INTGEMM8):
        raise UnreadableError(
            f"has weights of type {kind:#x} (`{name:.80}`), got neither float32 nor intgemm8. Take the file before it "
            "was packed for one kind of processor"
        )
    if kind == _FLOAT32:
        values = np.frombuffer(data, "<f4", number).reshape(shape).astype(np.float32)
    else:  # int8, then the factor; matrices are stored as (outputs, inputs), the embedding as it is
        (factor,) = struct.unpack_from("<f", data, number)
        with np.errstate(all="ignore"):
            values = np.frombuffer(data, np.int8, number).astype(np.float32) / np.float32(factor)
        values = values.reshape(shape) if name.endswith("Wemb") else values.reshape(shape[::-1]).T
    if not np.isfinite(values).all():
        raise UnreadableError(f"is damaged: `{name:.80}` has values that are not finite. Download it anew")
    return np.ascontiguousarray(values)
