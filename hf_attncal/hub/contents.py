"""Read every text in the files that go to the Hub: what a person or a program could take out of them, with its place.

Each kind of file has one reader (`READERS`), and a file without one cannot go up. So a check of texts
(`disclosure.py`) covers every file, and looks at no format itself.
"""

import ast
import fnmatch
import hashlib
import html
import io
import json
import mmap
import re
import tokenize
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from xml.parsers import expat

import yaml

from hf_attncal.data.protobuf import fields_of
from hf_attncal.io.errors import UnreadableError
from hf_attncal.layouts import file_of

# What may stand in a text. "text": anything that an author writes; "names": names of a graph, which may begin with a
# slash, or words of a page; "words": a vocabulary or a line of code, in which any word may look like a path.
Kind = Literal["text", "names", "words"]
Content = Path | bytes
Buffer = bytes | mmap.mmap | memoryview


class Text(NamedTuple):
    """A text in a file.

    Args:
        place: where it is, as an error names it ("line 3", "`auto_map.AutoModel`").
        text: what it says.
        kind: what may stand in it.
        keys: keys and positions that lead to it, in JSON and YAML; () for a key.
    """

    place: str
    text: str
    kind: Kind = "text"
    keys: tuple[str | int, ...] = ()


def texts_of(name: str, content: Content) -> Iterator[Text]:
    """Yield every text of a file, its name first.

    Raises:
        UnreadableError: nothing reads such a file, or it is not what its name says.
    """
    yield Text("its name", name)
    reader = next((read for pattern, read in READERS if fnmatch.fnmatchcase(Path(name).name, pattern)), None)
    if reader is None:
        raise UnreadableError("cannot be checked: nothing here reads such a file")
    file = file_of(name)
    kind: Kind = "words" if file is not None and file.has_words else "text"
    try:
        yield from reader(content, kind)
    except RecursionError as error:
        raise UnreadableError("cannot be read: it is nested too deeply") from error


def bytes_of(content: Content) -> bytes:
    """Return the content of a file."""
    return content if isinstance(content, bytes) else content.read_bytes()


def digest(data: bytes) -> str:
    """Return the SHA-256 of some content."""
    return hashlib.sha256(data).hexdigest()


def utf8_text(content: Content) -> str:
    """Return the text of a file in UTF-8.

    Raises:
        UnreadableError: it is in another encoding, or no text; the message names the line.
    """
    data = bytes_of(content)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = data[error.start]
        raise UnreadableError(f"is not in UTF-8 (byte 0x{wrong:02x} in line {line}): save it in UTF-8") from error
    if "\0" in text:
        raise UnreadableError(f"is no text: there is a NUL in line {text.count(chr(10), 0, text.index(chr(0))) + 1}")
    return text


# ---- text ----


def _lines(content: Content, kind: Kind) -> Iterator[Text]:
    for number, line in enumerate(utf8_text(content).splitlines(), start=1):
        yield Text(f"line {number}", line, kind)


def _page(content: Content, kind: Kind) -> Iterator[Text]:
    """HTML: lines as they are written and as they are read; the data of a script writes `/` as `\\/`."""
    for place, text, *_ in _lines(content, kind):
        for form in {text, html.unescape(text), text.replace("\\/", "/")}:
            yield Text(place, form, "names")


def _markdown(content: Content, kind: Kind) -> Iterator[Text]:
    """A card: the values of its front matter, then all lines."""
    text = utf8_text(content)
    if front := re.match(r"\s*---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", text, re.DOTALL | re.MULTILINE):
        before = text.count("\n", 0, front.start(1))
        yield from _nodes(front[1], before, must_be_mapping=True)
    yield from _lines(content, kind)


def _yaml(content: Content, kind: Kind) -> Iterator[Text]:
    yield from _nodes(utf8_text(content), 0)
    yield from _lines(content, kind)


def _nodes(text: str, before: int, must_be_mapping: bool = False) -> Iterator[Text]:
    """Values and keys of YAML, of which nothing is constructed; `before` lines stand above it."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + before + 1}"
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UnreadableError(f"is no valid YAML{line} ({problem}): correct it") from error
    if must_be_mapping and root is not None and not isinstance(root, yaml.MappingNode):
        raise UnreadableError("begins with YAML that is no mapping: write `key: value` lines between the ---")
    waiting: list[tuple[yaml.Node | None, tuple[str | int, ...]]] = [(root, ())]
    seen = set()
    while waiting:
        node, keys = waiting.pop()
        if node is None or id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield Text(f"line {node.start_mark.line + before + 1}", node.value, "text", keys)
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(child, (*keys, number)) for number, child in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            for key, child in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else "?"
                waiting += [(key, keys), (child, (*keys, name))]


# ---- JSON ----


class _Pairs(list):
    """The pairs of an object: a key that stands there twice has two of them."""


def _json(content: Content, kind: Kind) -> Iterator[Text]:
    yield from _values(_parsed(utf8_text(content)), (), kind)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except ValueError as error:
        raise UnreadableError(f"cannot be read as JSON: {error}") from error


# Where a tokenizer has its words, and regular expressions.
_WORDS = {"vocab", "merges", "added_tokens", "Regex", "precompiled_charsmap"}
_SHORTEST = 12  # characters; a shorter word is no secret


def _values(value: Any, keys: tuple[str | int, ...], kind: Kind, of: str = "") -> Iterator[Text]:
    """Strings and keys of JSON. In a file with words, the rest of it is text as anywhere else."""
    if isinstance(value, str):
        if kind == "words" and _WORDS.isdisjoint(keys):
            kind = "text"
        if kind == "words" and len(value) < _SHORTEST:
            return
        inner = None
        if value.lstrip()[:1] in ("{", "[", '"') and len(value) > 2:  # JSON within JSON, with escapes of its own
            with suppress(ValueError, RecursionError):
                inner = json.loads(value, object_pairs_hook=_Pairs)
        if inner is None:
            yield Text(f"{of}`{_dotted(keys)}`", value, kind, keys)
        else:
            yield from _values(inner, keys, kind, of)
    elif isinstance(value, _Pairs):
        for key, inner in value:
            if not (kind == "words" and isinstance(inner, int)):
                yield Text(f"{of}a key of `{_dotted(keys)}`", key, "names" if kind == "names" else "text")
            elif len(key) >= _SHORTEST:  # a word and its number
                yield Text(f"{of}a key of `{_dotted(keys)}`", key, "words")
            yield from _values(inner, (*keys, key), kind, of)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _values(inner, (*keys, number), kind, of)


def _dotted(keys: tuple[str | int, ...]) -> str:
    if not keys:
        return "the whole"
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)[:200].removeprefix(".")


# ---- code ----


def _python(content: Content, kind: Kind) -> Iterator[Text]:
    """Code, which is read and never run: strings as Python joins them, comments, and all lines."""
    text = utf8_text(content)
    try:
        tree = ast.parse(text)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [token for token in tokens if token.type == tokenize.COMMENT]
    except (SyntaxError, ValueError, MemoryError, tokenize.TokenError) as error:
        where = f" in line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else f": {error}"
        raise UnreadableError(f"cannot be read as Python{where}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            for number, line in enumerate(value.splitlines()):
                yield Text(f"line {node.lineno + number}", line)
    for token in comments:
        yield Text(f"line {token.start[0]}", token.string)
    yield from _lines(content, "words")


# ---- weights and pictures ----

# How whatever is looked for in the bytes of numbers begins; in those, no shorter text means anything. First letters
# stand before it, so that most bytes take one look.
_BEGINS = re.compile(
    rb"(?=[hAsgxPenpr/f])(?:hf_|AKIA|ASIA|sk-|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|AIza|PRIVATE KEY|eyJ|npm_|pypi-"
    rb"|[rs]k_live_|/home/|/Users/|/gpfs/|/lustre/|/Volumes/|/workspace/|/scratch/|file:///)"
)
_PRINTED = re.compile(rb"[\x20-\x7e]*")
_AROUND = 300


def _numbers(data: Buffer, place: str) -> Iterator[Text]:
    """Text between the numbers of some bytes."""
    view = memoryview(data)
    for found in _BEGINS.finditer(view):
        start, end = max(0, found.start() - _AROUND), found.end() + _AROUND
        before = re.search(rb"[\x20-\x7e]*\Z", bytes(view[start : found.start()]))
        after = _PRINTED.match(bytes(view[found.start() : end]))
        text = (before[0] if before else b"") + (after[0] if after else b"")
        if len(text) >= 12:
            yield Text(f"{place} {found.start()}", text.decode("ascii"), "names")


def _mapped(content: Content) -> Buffer:
    if isinstance(content, bytes) or not content.stat().st_size:
        return bytes_of(content)
    with content.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _raw(content: Content, kind: Kind) -> Iterator[Text]:
    yield from _numbers(_mapped(content), "byte")


def _safetensors(content: Content, kind: Kind) -> Iterator[Text]:
    data = memoryview(_mapped(content))
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise UnreadableError("is damaged: its header is longer than the file. Save the model again")
    try:
        header = _parsed(bytes(data[8 : 8 + size]).decode())
    except UnicodeDecodeError as error:
        raise UnreadableError("is damaged: its header is not in UTF-8. Save the model again") from error
    if not isinstance(header, _Pairs):
        raise UnreadableError("is damaged: its header is not a JSON object. Save the model again")
    for name, value in header:
        about = name == "__metadata__"
        yield Text("the name of a tensor", name, "names")
        yield from _values(value, (name,), "text" if about else "names")
    yield from _numbers(data[8 + size :], "byte")


def _png(content: Content, kind: Kind) -> Iterator[Text]:
    """What is written beside the picture: tEXt, zTXt, iTXt and eXIf."""
    data = bytes_of(content)
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise UnreadableError("is not a PNG picture. Draw it again")
    at = 8
    while at + 8 <= len(data):
        size, name = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        chunk, at = data[at + 8 : at + 8 + size], at + 12 + size
        if name in (b"IDAT", b"IEND", b"PLTE"):
            continue
        keyword, _, rest = chunk.partition(b"\0")
        parts = [keyword, rest]
        for skipped in range(len(rest) if name in (b"zTXt", b"iTXt") else 0):
            if rest[skipped : skipped + 1] == b"\x78":
                try:
                    parts.append(zlib.decompressobj().decompress(rest[skipped:], 1 << 20))
                except zlib.error:
                    continue
                break
        for part in parts:
            yield Text(f"`{keyword.decode('latin-1')[:40]}`", part.replace(b"\0", b" ").decode("utf-8", "replace"))
    if data[at:]:
        yield from _numbers(data[at:], "byte")


# ---- graphs and SentencePiece: protocol buffers ----

# Message -> field -> what it holds: "text", "names", "data" (numbers), or the name of a message. Fields that stand in
# no table are looked through like numbers.
_ENTRY = {1: "text", 2: "text"}
_ONNX: dict[str, dict[int, str]] = {
    "model": dict.fromkeys((2, 3, 4, 6), "text")
    | {7: "graph", 8: "opset", 14: "entry", 20: "training", 25: "function"},
    "opset": {1: "text"},
    "entry": _ENTRY,
    "training": {1: "graph", 2: "graph", 3: "entry", 4: "entry"},
    "graph": {1: "node", 2: "names", 5: "tensor", 10: "text", 11: "value", 12: "value", 13: "value", 16: "entry"},
    "node": {1: "names", 2: "names", 3: "names", 4: "names", 5: "attribute", 6: "text", 7: "text", 9: "entry"},
    "attribute": {1: "names", 4: "text", 5: "tensor", 6: "graph", 7: "data", 8: "data", 9: "text", 10: "tensor"}
    | {11: "graph", 13: "text", 21: "names"},
    "tensor": {1: "data", 4: "data", 5: "data", 6: "text", 7: "data", 8: "names", 9: "data", 10: "data", 11: "data"}
    | {12: "text", 13: "entry", 16: "entry"},
    "value": {1: "names", 2: "names", 3: "text", 4: "entry"},
    "function": {1: "names", 4: "names", 5: "names", 6: "names", 7: "node", 8: "text", 9: "opset", 10: "text"}
    | {11: "attribute", 12: "value", 13: "names", 14: "entry"},
}
_NAME = {"node": 3, "tensor": 8, "value": 1, "graph": 2, "attribute": 1, "function": 1}  # the field with the name
_PIECES: dict[str, dict[int, str]] = {
    "model": {1: "piece", 2: "trainer", 3: "normalizer", 4: "samples", 5: "normalizer"},
    "piece": {1: "words"},
    "trainer": dict.fromkeys((1, 2, 5, 7, 30, 31, 36, 45, 46, 47, 48, 54), "text"),
    "normalizer": {1: "text", 2: "data", 6: "text"},
    "samples": {1: "sample"},
    "sample": {1: "words", 2: "words"},
}


def _messages(content: Content, kind: Kind, schema: dict[str, dict[int, str]]) -> Iterator[Text]:
    """Texts of a protocol buffer, with the name of the message that holds each."""
    waiting: list[tuple[str, str, memoryview]] = [("", "model", memoryview(_mapped(content)))]
    while waiting:
        within, message, data = waiting.pop()
        named = within
        for number, value, _ in fields_of(data):
            holds = schema[message].get(number)
            if value is None:
                continue
            if holds in schema:
                waiting.append((named or message, holds, value))
            elif holds in (None, "data"):
                yield from _numbers(value, f"{named or message}, byte")
            else:
                text = bytes(value).decode("utf-8", "replace")
                if number == _NAME.get(message):
                    named = f"the {message} {text[:60]!r}"
                yield Text(named or f"the {message}", text, cast(Kind, holds))


def _openvino(content: Content, kind: Kind) -> Iterator[Text]:
    """Attributes, texts and comments of XML."""
    texts: list[Text] = []
    parser = expat.ParserCreate()

    def add(text: str, of: Kind = "text", key: str = "") -> None:
        texts.append(Text(f"line {parser.CurrentLineNumber}{key}", text, of))

    def start(tag: str, attributes: dict[str, str]) -> None:
        fused = attributes.get("name", "").startswith("fused_names")
        for key, value in attributes.items():
            named = key in ("name", "names") or (fused and key == "value")
            add(value, "names" if named else "text", f", `{key}`")

    parser.StartElementHandler, parser.CharacterDataHandler, parser.CommentHandler = start, add, add
    parser.ProcessingInstructionHandler = lambda target, text: add(text)
    try:
        parser.Parse(utf8_text(content).encode(), True)
    except expat.ExpatError as error:
        raise UnreadableError(f"is no valid XML: {error}. Export it again") from error
    yield from texts


# The first pattern that fits a name counts.
READERS: tuple[tuple[str, Callable[[Content, Kind], Iterator[Text]]], ...] = (
    ("*.json", _json),
    ("*.md", _markdown),
    ("*.yaml", _yaml),
    ("*.py", _python),
    ("*.htm*", _page),
    ("*.safetensors", _safetensors),
    ("*.onnx", partial(_messages, schema=_ONNX)),
    ("*.onnx.data", _raw),
    ("openvino_model.bin", _raw),
    ("*.xml", _openvino),
    ("*.spm", partial(_messages, schema=_PIECES)),
    ("sentencepiece*.model", partial(_messages, schema=_PIECES)),
    ("*.png", _png),
    ("*.txt", _lines),
    ("*.jinja", _lines),
    ("LICENSE*", _lines),
    ("NOTICE*", _lines),
)
