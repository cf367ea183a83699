"""Terms that a translation has to use: a glossary from TSV or TBX, and which of its terms a line misses.

checker = Checker.from_pretrained("aligner", glossary=Glossary.read("terms.tsv"))
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

_ENDINGS = 3  # letters that a word of a text may have beyond that of a term: inflections
_WORD = re.compile(r"\w+")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Glossary:
    """Terms of the source with their translations, any of which is right.

    Args:
        terms: term -> translations. Case does not count, and the last word of each may have up to three more letters.

    Raises:
        ValueError: a term or a translation has no letters.
    """

    def __init__(self, terms: Mapping[str, Sequence[str]]):
        self._terms: dict[str, list[tuple[str, re.Pattern, list[re.Pattern]]]] = {}
        for term, translations in terms.items():
            if not translations or not all(map(_WORD.search, (term, *translations))):
                raise ValueError(f"`terms` must have letters and a translation, got {term!r}: {list(translations)!r}.")
            first = _WORD.search(term)[0].casefold()
            self._terms.setdefault(first, []).append((term, _pattern(term), list(map(_pattern, translations))))

    @classmethod
    def read(cls, path: str | Path, source: str = "", target: str = "") -> "Glossary":
        """Read a glossary.

        Args:
            path: of TSV, a term and its translations (parted by `|`) on each line, or of TBX (`.tbx`, `.xml`).
            source, target: languages as a TBX file has them (`en`).

        Raises:
            ValueError: a line has no tab, or the XML is broken, defines entities, or has no such languages.
        """
        path = Path(path)
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() in (".tbx", ".xml"):
            return cls(_of_tbx(text, path, source, target))
        terms: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            term, tab, others = line.partition("\t")
            if not tab:
                raise ValueError(
                    f"{path}, line {number}: a term, a tab and its translation must stand there, got {line!r}."
                )
            terms.setdefault(term.strip(), []).extend(one.strip() for one in others.split("\t")[0].split("|"))
        return cls(terms)

    def missed(self, source: str, target: str) -> list[str]:
        """Return the terms of a source of which the target has no translation."""
        words = {match[0].casefold() for match in _WORD.finditer(source)}
        firsts = {word[: len(word) - cut] for word in words for cut in range(min(_ENDINGS + 1, len(word)))}
        return [
            term
            for first in sorted(firsts & self._terms.keys())
            for term, pattern, translations in self._terms[first]
            if pattern.search(source) and not any(one.search(target) for one in translations)
        ]


def _pattern(term: str) -> re.Pattern:
    words = r"\W+".join(map(re.escape, _WORD.findall(term)))
    return re.compile(rf"\b{words}\w{{0,{_ENDINGS}}}\b", re.IGNORECASE)


def _of_tbx(text: str, path: Path, source: str, target: str) -> dict[str, list[str]]:
    if "<!ENTITY" in text:
        raise ValueError(f"{path} defines entities, which no glossary needs. Leave them out.")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is no XML: {error}.") from None
    terms: dict[str, list[str]] = {}
    seen: set[str] = set()
    for entry in root.iter():
        if _name(entry) not in ("termEntry", "conceptEntry"):
            continue
        of_language: dict[str, list[str]] = {}
        for side in entry:
            language = side.get(_LANGUAGE, "").casefold().partition("-")[0]
            of_language.setdefault(language, []).extend(
                (one.text or "").strip() for one in side.iter() if _name(one) == "term"
            )
        seen |= of_language.keys() - {""}
        for term in of_language.get(source, ()):
            if translations := of_language.get(target):
                terms.setdefault(term, []).extend(translations)
    if not terms:
        raise ValueError(f"{path} has no terms from {source!r} to {target!r}; its languages are {sorted(seen)}.")
    return terms


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
