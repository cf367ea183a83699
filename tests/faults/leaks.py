"""Folders that must not go up as they are: each leak in each place of each kind of file; and what only looks like one.

What is put into the files is drawn anew from `seed`, so another seed is another campaign.
"""

import itertools
import json
import os
import random
import string
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

from outcomes import Outcome, Result

SECRET, PLACE, USER, FOREIGN = (
    "secrets to publish",
    "paths to publish",
    "a user name to publish",
    "foreign code to publish",
)
BROKEN, LINKED, RUN = "broken files to publish", "links and files of others to publish", "code to publish"
HARMLESS = "what only looks like a secret or a path"
USER_NAME = "annabel"
Draw = random.Random
Case = Callable[[], Outcome]

# ---- what is put in ----


def _some(draw: Draw, size: int, letters: str = string.ascii_letters + string.digits) -> str:
    return "a1B" + "".join(draw.choices(letters, k=size - 3))


def secrets(draw: Draw) -> list[str]:
    """Tokens and keys, as services issue them."""
    capitals = string.ascii_uppercase + string.digits
    return [
        f"hf_{_some(draw, 34, string.ascii_letters)}",
        f"{draw.choice(['AKIA', 'ASIA'])}{''.join(draw.choices(capitals, k=16))}",
        f"sk-{_some(draw, 48)}",
        f"sk-proj-{_some(draw, 20)}-{_some(draw, 20)}_{_some(draw, 20)}",
        f"sk-ant-api03-{_some(draw, 40)}-{_some(draw, 40)}",
        f"gh{draw.choice('pousr')}_{_some(draw, 36)}",
        f"github_pat_{_some(draw, 22)}_{_some(draw, 59)}",
        f"glpat-{_some(draw, 20)}",
        f"xox{draw.choice('bpas')}-{draw.randrange(10**11)}-{_some(draw, 24)}",
        f"AIza{_some(draw, 35)}",
        f"-----BEGIN {draw.choice(['', 'RSA ', 'EC ', 'OPENSSH '])}PRIVATE KEY-----",
        f"eyJ{_some(draw, 20)}.eyJ{_some(draw, 30)}.{_some(draw, 30)}",
        f"{draw.choice(['HF_TOKEN', 'AWS_SECRET_ACCESS_KEY', 'DB_PASSWORD', 'WANDB_API_KEY'])}={_some(draw, 20)}",
        f"https://anna:{_some(draw, 12)}@git.example.org/repository",
        f"Authorization: Bearer {_some(draw, 30)}",
        f"npm_{_some(draw, 36)}",
        f"sk_live_{_some(draw, 24)}",
    ]


def paths(draw: Draw) -> list[str]:
    """Absolute paths of many shapes."""
    a, b = (_some(draw, 6, string.ascii_lowercase).lower() for _ in range(2))
    roots = (
        "home",
        "Users",
        "gpfs",
        "lustre",
        "mnt",
        "data",
        "scratch",
        "workspace",
        "Volumes",
        "root",
        "tmp",
        "p",
        "fsx",
    )
    return [
        *(f"/{root}/{a}/{b}" for root in draw.sample(roots, 5)),
        f"/{a}/{b}/train.de",
        f"file:///{a}/{b}",
        f"~{a}/{b}",
        f"{draw.choice('cCdD')}:\\{a}\\{b}",
        f"{draw.choice('cCeE')}:/{a}/{b}",
        f"\\\\{a}\\{b}\\train",
        f"{a}@{b}:/home/{a}/x",
    ]


def harmless(draw: Draw) -> list[str]:
    """What must go up."""
    a, b, c = ("".join(draw.choices(string.ascii_lowercase, k=draw.randrange(2, 9))) for _ in range(3))
    return [
        f"https://{a}.org/{b}/{c}",
        f"https://huggingface.co/{a}/{b}/blob/main/{c}.json",
        f"{a}/{b}",
        f"./{a}/{b}/{c}",
        f"{a}/{b}/{c}.de.gz",
        f"{a} and/or {b}, {draw.randrange(99)} km/h",
        f"<{a}> </{b}> [/{c.upper()}]",
        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+",
        "(?i:'s|'t|'re|'ve)|\\s+(?!\\S)",
        f"{a.upper()}_TOKEN=<{b}> {c.upper()}_TOKENS={draw.randrange(10**6)}",
        f"sk-{a}-{b}-{c}-of-some-words",
        f"doi:10.{draw.randrange(9999)}/{a}.{b}",
        f"{draw.randrange(1, 29)}/{draw.randrange(1, 13)}/20{draw.randrange(10, 27)} 12:30",
        f"${{HOME}}/{a}/{b}",
        f"{_some(draw, 64, string.hexdigits).lower()}",
        f"nrefs:1|case:mixed|tok:13a|version:2.{draw.randrange(9)}.0",
        f"password of {a}: {b}",
        f"Q:\\n{a}\\nA:\\n",
        f"{a}@{b}.org",
    ]


# ---- where it is put: name of the file -> place -> the file's content with it ----

Place = Callable[[bytes, str], bytes]


def _in_object(*keys: str, raw: bool = False, inner: bool = False) -> Place:
    def put(before: bytes, text: str) -> bytes:
        whole = at = json.loads(before or b"{}")
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        at[keys[-1]] = [json.dumps({"x": text})] if inner else [text]
        return json.dumps(whole, ensure_ascii=not raw).encode()

    return put


def _as_key(before: bytes, text: str) -> bytes:
    return json.dumps(json.loads(before or b"{}") | {"about": {text: 1.5}}).encode()


def _twice(before: bytes, text: str) -> bytes:
    """A key that is given twice: readers see the second."""
    return f'{{"about": {json.dumps(text)}, "about": "",'.encode() + (before or b'{"x": 1}').lstrip()[1:]


def _escaped(before: bytes, text: str) -> bytes:
    codes = "".join(f"\\u{ord(letter):04x}" for letter in text)
    return f'{{"about": "{codes}",'.encode() + (before or b'{"x": 1}').lstrip()[1:]


def _line(form: str) -> Place:
    return lambda before, text: before + f"\n{form.format(text)}\n".encode()


def _front(form: Callable[[str], str]) -> Place:
    return lambda before, text: before.replace(b"---\n", f"---\nabout: {form(text)}\n".encode(), 1)


def _joined(before: bytes, text: str) -> bytes:
    middle = len(text) // 2
    return before + f"\nABOUT = (\n    {text[:middle]!r}\n    {text[middle:]!r}\n)\n".encode()


def _metadata(before: bytes, text: str) -> bytes:
    size = struct.unpack("<Q", before[:8])[0]
    header = json.loads(before[8 : 8 + size])
    header["__metadata__"] = header.get("__metadata__", {}) | {"about": text}
    new = json.dumps(header).encode()
    return struct.pack("<Q", len(new)) + new + before[8 + size :]


def message(*fields: tuple[int, bytes | str]) -> bytes:
    """A protocol buffer of fields that have a length."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    parts = [(number, value.encode() if isinstance(value, str) else value) for number, value in fields]
    return b"".join(varint(number << 3 | 2) + varint(len(value)) + value for number, value in parts)


def _onnx(where: str) -> Place:
    def put(_: bytes, text: str) -> bytes:
        def at(place: str) -> str:
            return text if place == where else "/model/encoder/layers.0/MatMul_output_0" if place == "name" else "x"

        entry = message((1, "pkg.torch.onnx.stack_trace"), (2, f"File {text}, line 3" if where == "metadata" else "x"))
        attribute = message((1, "value"), (4, at("attribute")))
        node = message(
            (1, at("name")), (3, at("name")), (5, attribute), (6, text if where == "doc" else ""), (9, entry)
        )
        tensor = message(
            (8, "/weight"), (13, message((1, "location"), (2, text if where == "data" else "model.onnx.data")))
        )
        return message((2, "pytorch"), (7, message((1, node), (2, "main_graph"), (5, tensor))))

    return put


def _xml(form: str) -> Place:
    def put(_: bytes, text: str) -> bytes:
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace("--", "- -" if "<!--" in form else "--")
        layer = '<layer id="0" name="/model/encoder/MatMul" type="MatMul" version="opset1"/>'
        return f"<?xml version='1.0'?>\n<net name='Model0'>\n{layer}\n{form.format(text)}\n</net>\n".encode()

    return put


def _chunk(name: bytes, packed: bool) -> Place:
    def put(_: bytes, text: str) -> bytes:
        value = b"\0" + zlib.compress(text.encode()) if packed else text.encode("latin-1", "replace")
        chunk = b"Comment\0" + value
        return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(chunk)) + name + chunk + b"\0\0\0\0"

    return put


def _flat(before: bytes, text: str) -> bytes:
    return json.dumps({text: 5}).encode()


PLACES: dict[str, dict[str, Place]] = {
    **{
        name: {
            "a value": _in_object("about"),
            "deep within": _in_object("about", "and", "more"),
            "JSON in a value": _in_object("about", inner=True),
            "a key": _as_key,
            "a key twice": _twice,
            "escaped": _escaped,
        }
        for name in ("config.json", "generation_config.json", "tokenizer_config.json", "results.json", "check.json")
    },
    "tokenizer.json": {"a value": _in_object("about"), "in the decoder": _in_object("about", "pattern")},
    "special_tokens_map.json": {"a value": _in_object("about")},
    "README.md": {
        "the text": _line("It reads {0} first."),
        "code": _line("```\npython x.py --data={0}\n```"),
        "a comment": _line("<!-- {0} -->"),
        "the front matter": _front(json.dumps),
        "a list of the front matter": _front(lambda text: f"\n- x\n- {json.dumps(text)}"),
    },
    "functional.py": {
        "a comment": _line("# {0}"),
        "a string": lambda before, text: before + f"\nABOUT = {text!r}\n".encode(),
        "a string in two parts": _joined,
        "bytes": lambda before, text: before + f"\nABOUT = {text.encode('latin-1', 'replace')!r}\n".encode(),
    },
    "LICENSE": {"a line": _line("{0}")},
    "NOTICE.txt": {"a line": _line("see {0}")},
    "chat_template.jinja": {"a comment": _line("{{# {0} #}}")},
    "model.safetensors": {"metadata": _metadata},
    "model.onnx": {where: _onnx(where) for where in ("metadata", "doc", "attribute", "data")},
    "openvino_model.xml": {
        "rt_info": _xml('<rt_info><input_model value="{0}"/></rt_info>'),
        "a comment": _xml("<!-- {0} -->"),
        "text": _xml("<about>{0}</about>"),
    },
    "link_probabilities.png": {"tEXt": _chunk(b"tEXt", False), "zTXt": _chunk(b"zTXt", True)},
}
# Where any word may stand: only secrets are seen.
WORDS: dict[str, dict[str, Place]] = {
    "vocab.txt": {"a line": _line("{0}")},
    "vocab.json": {"a word": _flat},
    "tokenizer.json": {"a word": _in_object("model", "vocab", raw=True)},
    "source.spm": {"a piece": lambda before, text: message((1, message((1, text))))},
}

# ---- what becomes of it ----


def run(folder: Path, *, full: bool, seed: int | None = None) -> list[Outcome]:
    """Every place with a third of what is put there, drawn by the seed; without `full` some of each kind."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "hub"))
    from hub_helpers import saved

    draw = Draw(int(os.environ.get("ATTNCAL_FAULTS_SEED", "0")) if seed is None else seed)
    saved("marian", folder)
    outcomes: list[Outcome] = []
    with mock.patch("getpass.getuser", return_value=USER_NAME):
        if (answer := _published(folder)) is not None:
            return [Outcome(HARMLESS, "a folder as it was saved", "lost", answer)]
        for kind, places, texts, leaks in (
            (SECRET, PLACES, secrets, True),
            (SECRET, WORDS, secrets, True),
            (PLACE, PLACES, paths, True),
            (USER, PLACES, lambda draw: [f"by {USER_NAME}", USER_NAME], True),
            (HARMLESS, PLACES, harmless, False),
            (HARMLESS, WORDS, lambda draw: harmless(draw) + paths(draw), False),
        ):
            for name, forms in places.items():
                for place in forms if full else draw.sample(sorted(forms), 1):
                    some = texts(draw)
                    if not leaks and name == "check.json" and forms[place] is _twice:
                        continue  # refused whatever it is
                    for text in draw.sample(some, -(-len(some) // 3) if full else 1):
                        case = f"{name}, {place}: {text}"
                        outcomes.append(_tried(folder, kind, case, name, forms[place], text, leaks))
        for cases, few in (
            (_foreign(folder, draw), 5),
            (_broken(folder), 4),
            (_linked(folder), 2),
            (_code(folder), 4),
        ):
            some = cases if full else itertools.islice(cases, draw.randrange(few), None, few)
            outcomes += [case() for case in some]
    return outcomes


def _published(folder: Path) -> str | None:
    """What the dry run of a folder is refused with; None if it is not."""
    from hf_attncal.hub.publish import PublishError, publish_folder

    try:
        publish_folder(folder, "someone/model", dry_run=True, try_loading=False)
    except PublishError as error:
        return str(error)
    return None


def _tried(folder: Path, kind: str, case: str, name: str, put: Place, text: str, leaks: bool) -> Outcome:
    path = folder / name
    before = path.read_bytes() if path.exists() else None
    try:
        path.write_bytes(put(before or b"", text))
        return Outcome(kind, case, *judged(folder, name, text if kind == SECRET else None, leaks))
    finally:
        path.unlink()
        if before is not None:
            path.write_bytes(before)


def judged(folder: Path, name: str, secret: str | None, leaks: bool) -> tuple[Result, str]:
    """Whether a folder is refused by one line that names the file, and does not tell the secret; or goes up."""
    try:
        answer = _published(folder)
    except Exception as error:
        return "traceback", repr(error)
    if not leaks:
        return ("survived", "") if answer is None else ("lost", answer)
    if answer is None:
        return "leaked", "it would go up"
    if secret is not None and secret in answer and len(secret) > 40:
        return "leaked", answer
    if len(answer.splitlines()) != 1 or name not in answer:
        return "wrong", answer
    return "refused", ""


def _set(key: str, value: object) -> Place:
    return lambda before, text: json.dumps(json.loads(before or b"{}") | {key: value}).encode()


def _foreign(folder: Path, draw: Draw) -> Iterator[Case]:
    other = f"{_some(draw, 5)}/code--modeling.Model"
    for name in (
        "config.json",
        "tokenizer_config.json",
        "generation_config.json",
        "check.json",
        "processor_config.json",
    ):
        for place, put in {
            "auto_map": _in_object("auto_map", "AutoTokenizer"),
            "deep within": _in_object("a", "b", "auto_map", "AutoModel"),
            "of a pipeline": _in_object("custom_pipelines", "x", "impl"),
            "not in the folder": _set("auto_map", {"AutoProcessor": "nothing.Here"}),
            "a list": _set("auto_map", [other]),
            "a text": _set("auto_map", other),
            "a kernel": _set("attn_implementation", "anna/kernel"),
        }.items():
            yield partial(_tried, folder, FOREIGN, f"{name}, {place}", name, put, other, True)


def _broken(folder: Path) -> Iterator[Case]:
    contents: dict[str, dict[str, bytes]] = {
        "README.md": {
            "YAML": b"---\na: [1\nb: }\n---\n# x\n",
            "a list": b"---\n- a\n---\n# x\n",
            "Latin-1": b"# \xfcber\n",
        },
        "config.json": {"a list": b"[]", "a text": b'"x"', "cut": b'{"a": ', "empty": b"", "deep": b"[" * 99999},
        "results.json": {
            "a list": b"[1]",
            "Latin-1": b'{"a": "\xfc"}',
            "types": b'{"steps": "many", "hardware": [1]}',
        },
        "tokenizer_config.json": {"cut": b"{", "NUL": b'{"a": "\0"}'},
        "functional.py": {"Latin-1": b"# \xfcber\n", "no Python": b"def (:\n", "NUL": b"a = 1\0\n"},
        "model.safetensors": {"empty": b"", "cut": b"\xff" * 20, "a list": struct.pack("<Q", 2) + b"[]"},
        "model.onnx": {"cut": message((7, "abc"))[:-2], "text": b"no graph at all, but text"},
        "openvino_model.xml": {"cut": b"<net>", "Latin-1": b"<net a='\xfc'/>"},
        "source.spm": {"cut": message((2, "abc"))[:-2]},
        "link_probabilities.png": {"text": b"no picture"},
        "LICENSE": {"variables": b"# mine\nHOST=x\nPORT=80\n", "Latin-1": b"\xa9 Anna"},
        "vocab.txt": {"variables": b"export HOST=db.example.org\n\nUSER_ID=anna\n"},
    }
    for name, some in contents.items():
        for what, content in some.items():
            put = partial(lambda new, before, text: new, content)
            yield partial(_tried, folder, BROKEN, f"{name}: {what}", name, put, "", True)
    values: dict[str, tuple[object, ...]] = {
        "auto_map": ([], [1], 5, "x", {"AutoConfig": 5}, [[]]),
        "architectures": ("x", {}, [5], [[]]),
        "model_type": (5, None, [], {}),
    }
    for key, some_values in values.items():
        for value in some_values:
            case = f"config.json: {key} {value}"
            yield partial(_tried, folder, BROKEN, case, "config.json", _set(key, value), "", True)


def _linked(folder: Path) -> Iterator[Case]:
    outside = folder.with_name("outside")
    outside.mkdir(exist_ok=True)
    (outside / "LICENSE").write_text("mine")
    for name, target in {
        "LICENSE": outside / "LICENSE",
        "NOTICE": Path("README.md"),
        "check.json": Path("results.json"),
        "more": outside,
        "model-2.safetensors": Path("model.safetensors"),
        "vocab.json": Path("nowhere"),
    }.items():
        yield partial(_with_link, folder, name, target)
    for name in (
        ".env",
        "secrets.txt",
        "id_rsa",
        "train.de",
        "optimizer.pt",
        "notes.ipynb",
        "LICENSE.pkl",
        "model.gguf",
    ):
        yield partial(_tried, folder, LINKED, name, name, lambda before, text: b"\x80\x04A=1\n", "", True)


def _with_link(folder: Path, name: str, target: Path) -> Outcome:
    (folder / name).symlink_to(target)
    try:
        return Outcome(LINKED, f"{name} -> {target.name}", *judged(folder, name, None, True))
    finally:
        (folder / name).unlink()


# Lines that do something when the code is imported.
_ACTS = {
    "at the end": "\n__import__('pathlib').Path({0!r}).write_text('run')\n",
    "in a class": "\nclass _X:\n    __import__('pathlib').Path({0!r}).write_text('run')\n",
    "as a default": "\ndef _x(a=__import__('pathlib').Path({0!r}).write_text('run')): ...\n",
    "a changed word": "\n# as before\n",
}


def _code(folder: Path) -> Iterator[Case]:
    """Code that is not the package's: read, not run, and said."""
    for name in ("modeling_attncal_marian.py", "functional.py", "tokenization_mine.py"):
        for what, line in _ACTS.items():
            yield partial(_with_code, folder, f"{name}: {what}", name, line)


def _with_code(folder: Path, case: str, name: str, line: str) -> Outcome:
    from fuzz import here

    mark, path = folder.with_name("mark"), folder / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes((before or b"") + line.format(os.path.relpath(mark)).encode())
    answer = here(["publish", str(folder), "someone/model", "--dry-run"])
    result: tuple[Result, str] = ("refused", "")
    if mark.exists():
        result = "run_unasked", answer.err
    elif answer.status != 1 or f"{name} is" not in answer.err or "not run" not in answer.err:
        result = "wrong", answer.err
    if before is None:
        path.unlink()
    else:
        path.write_bytes(before)
    mark.unlink(missing_ok=True)
    return Outcome(RUN, case, *result)
