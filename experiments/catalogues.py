"""Write the catalogues that check_catalogues.py measures on: DIR/LANGUAGE/PROJECT.po, from unpacked packages.

    python experiments/catalogues.py --packages ROOT --output DIR

ROOT has a folder of each package in catalogues.yaml, unpacked: of Debian (`dpkg -x`), a wheel, or of npm. Entries
that are not translated, or fuzzy, are left out. The catalogues have licences of their own, and are only measured on.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import polib
import yaml

FILES, HALVES = (
    yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("catalogues.yaml", "check_catalogues.yaml")
)
DEFAULT = re.compile(r'Default: "(.*)"\Z', re.DOTALL)  # comment with the text of a key


def json_pairs(source: dict, target: dict) -> Iterator[tuple[str, str]]:
    """Yield the texts of two trees, with the same keys, in the order of the first."""
    for key, text in source.items():
        other = target.get(key)
        if isinstance(text, dict) and isinstance(other, dict):
            yield from json_pairs(text, other)
        elif isinstance(text, str) and isinstance(other, str):
            yield text, other


def entries(file: Path, language: str) -> Iterator[polib.POEntry]:
    """Yield the entries of a file."""
    if file.suffix == ".json":
        source = Path(str(file).replace(f"/{language}/", "/en-US/"))
        trees = (json.loads(one.read_text(encoding="utf-8")) for one in (source, file))
        yield from (polib.POEntry(msgid=one, msgstr=other) for one, other in json_pairs(*trees))
    elif file.suffix == ".xlf":
        for unit in ElementTree.parse(file).getroot().iterfind(".//{*}trans-unit"):
            texts = ("".join(unit.find(f"{{*}}{side}").itertext()) for side in ("source", "target"))
            yield polib.POEntry(**dict(zip(("msgid", "msgstr"), texts, strict=True)))
    else:
        for entry in (polib.mofile if file.suffix == ".mo" else polib.pofile)(str(file)).translated_entries():
            default = DEFAULT.match(entry.comment or "")
            entry.msgid = default[1] if default else entry.msgid
            yield entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    for project, languages in (HALVES["choose"] | HALVES["report"]).items():
        for language in languages:
            catalogue = polib.POFile(encoding="utf-8", wrapwidth=0)
            catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": language}
            for pattern in FILES[project]:
                files = sorted(options.packages.glob(pattern.format(language)))
                if not files:
                    parser.error(f"{options.packages} has no {pattern.format(language)}: unpack its package there.")
                for one in (one for file in files for one in entries(file, language)):
                    if one.msgid and one not in catalogue:
                        catalogue.append(one)
            output = options.output / language / f"{project}.po"
            output.parent.mkdir(parents=True, exist_ok=True)
            catalogue.save(str(output))
            print(f"{language} {project}: {len(catalogue)} entries")


if __name__ == "__main__":
    main()
