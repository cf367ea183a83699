"""Fields of a protocol buffer, as models of SentencePiece and graphs are written."""

from collections.abc import Iterator

from hf_attncal.io.errors import UnreadableError


def fields_of(data: memoryview) -> Iterator[tuple[int, memoryview | None, memoryview]]:
    """Number of each field, its bytes if it has a length, and all of it."""
    at, damaged = 0, UnreadableError("is damaged: it ends within a field. Write it anew")

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


def without_names_of_text(model: bytes) -> bytes:
    """Return a model of SentencePiece without the names of the files that it was trained on and saved in.

    Nothing reads these names, and those of the stock models are paths of their authors.

    Raises:
        UnreadableError: it is no such model.
    """
    kept = []
    for number, trainer, field in fields_of(memoryview(model)):
        if number == 2 and trainer is not None:
            inner = b"".join(bytes(whole) for inside, _, whole in fields_of(trainer) if inside not in (1, 2, 54))
            kept.append(b"\x12" + _varint(len(inner)) + inner)
        else:
            kept.append(bytes(field))
    return b"".join(kept)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
