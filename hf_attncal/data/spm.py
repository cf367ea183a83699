"""SentencePiece models: read protocol buffers, and convert them into tokenizers of transformers."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from hf_attncal.io.errors import UnreadableError

from .tokenizer import EOS, PAD, SPACE, UNK, fast_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_UNKNOWN, _BYTE = 2, 6  # types of pieces; 1 is a normal piece
_UNIGRAM = 1
# Text that looks like a special token is split, so that it is ordinary text.
_LIKE_SPECIAL = Regex(r"<(?=/s>|unk>|pad>)")


class SpmModel(NamedTuple):
    """Content of a SentencePiece file.

    Args:
        pieces: text, score and type of each piece.
        kind: type of the model, 1 for unigrams.
        characters: normalisation table; empty for none.
        prefix: True to add a space before a text.
        squeeze: True to remove white space at the ends, and all but one space of a run.
    """

    pieces: list[tuple[str, float, int]]
    kind: int
    characters: bytes
    prefix: bool
    squeeze: bool


def read_spm(path: str | Path) -> SpmModel:
    """Read a SentencePiece model.

    Raises:
        UnreadableError: the file is damaged or not such a model.
    """
    pieces, kind, characters, flags = [], _UNIGRAM, b"", {3: True, 4: True}
    try:
        for field, value, _ in fields_of(memoryview(Path(path).read_bytes())):
            if field == 1 and value is not None:
                pieces.append(_piece(value))
            elif field == 2 and value is not None:
                kind = next((_number(whole) for inner, _, whole in fields_of(value) if inner == 3), _UNIGRAM)
            elif field == 3 and value is not None:
                for inner, content, whole in fields_of(value):
                    if inner == 2 and content is not None:
                        characters = bytes(content)
                    elif inner in flags:
                        flags[inner] = bool(_number(whole))
    except (UnreadableError, UnicodeDecodeError, struct.error, IndexError) as error:
        raise UnreadableError("is not a SentencePiece model, or damaged. Download it again") from error
    if not pieces:
        raise UnreadableError("is not a SentencePiece model: it has no pieces")
    return SpmModel(pieces, kind, characters, flags[3], flags[4])


def _piece(data: memoryview) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, 1
    for field, value, whole in fields_of(data):
        if field == 1 and value is not None:
            text = bytes(value).decode()
        elif field == 2:
            (score,) = struct.unpack("<f", whole[-4:])
        elif field == 3:
            kind = _number(whole)
    return text, score, kind


def _number(field: memoryview) -> int:
    """Return the value of a field with one byte of tag and one byte of value."""
    return field[1]


def spm_tokenizer(path: str | Path, model_max_length: int = 512) -> "PreTrainedTokenizerFast":
    """Convert a SentencePiece model into a tokenizer that appends `</s>` and pads with `<pad>`.

    Token ids are the numbers of the pieces, then `<pad>`. Text that looks like a special token is ordinary text.

    Raises:
        UnreadableError: not a SentencePiece unigram model, or one without `</s>` and `<unk>`, or with a `<pad>`.
    """
    model = read_spm(path)
    if model.kind != _UNIGRAM:
        raise UnreadableError("has another `model_type` than unigram, the only supported one")
    texts = {text: number for number, (text, _, _) in enumerate(model.pieces)}
    unknown = [text for text, _, kind in model.pieces if kind == _UNKNOWN]
    if EOS not in texts or unknown != [UNK] or PAD in texts:
        raise UnreadableError(f"must have `{EOS}` and `{UNK}` and no `{PAD}`, like vocabularies of Marian")
    vocabulary = [(text, score) for text, score, _ in model.pieces] + [(PAD, 0.0)]
    fallback = any(kind == _BYTE for _, _, kind in model.pieces)
    try:
        tokenizer = Tokenizer(models.Unigram(vocabulary, texts[UNK], byte_fallback=fallback))
        steps: list[normalizers.Normalizer] = []
        if model.characters:
            steps.append(normalizers.Precompiled(model.characters))
    except Exception as error:  # the library raises nothing narrower for a damaged table
        raise UnreadableError("is damaged: its normalisation table cannot be read. Download it again") from error
    if model.squeeze:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    tokenizer.normalizer = normalizers.Sequence(steps)
    prefix: Literal["always", "never"] = "always" if model.prefix else "never"
    within = any(SPACE in text[1:].lstrip(SPACE) for text, _, _ in model.pieces)  # a piece of several words
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(SPACE, prefix, split=not within), pre_tokenizers.Split(_LIKE_SPECIAL, "isolated")]
    )
    joined = decoders.Metaspace(SPACE, prefix)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), joined]) if fallback else joined
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, texts[EOS])]
    )
    return fast_tokenizer(tokenizer, model_max_length)


# ---- protocol buffers ----


def fields_of(data: memoryview) -> Iterator[tuple[int, memoryview | None, memoryview]]:
    """Yield the number of each field, its content if it has a length, and the whole field."""
    at, damaged = 0, UnreadableError("is damaged: it ends within a field. Write it again")

    def varint() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            if at >= len(data):
                break
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise damaged

    while at < len(data):
        start = at
        tag = varint()
        value = None
        if tag & 7 == 2:
            size = varint()
            value, at = data[at : at + size], at + size
        elif tag & 7 == 0:
            varint()
        elif tag & 7 in (1, 5):
            at += 8 if tag & 7 == 1 else 4
        else:
            raise damaged
        if at > len(data):
            raise damaged
        yield tag >> 3, value, data[start:at]


def without_file_names(model: bytes) -> bytes:
    """Remove the file names of training text and model from a SentencePiece model.

    Nothing uses these names, and in the stock models they are paths of their authors.

    Raises:
        UnreadableError: not a SentencePiece model.
    """
    fields = []
    for number, trainer, field in fields_of(memoryview(model)):
        if number == 2 and trainer is not None:
            inner = b"".join(bytes(whole) for inside, _, whole in fields_of(trainer) if inside not in (1, 2, 54))
            fields.append(b"\x12" + _varint(len(inner)) + inner)
        else:
            fields.append(bytes(field))
    return b"".join(fields)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
