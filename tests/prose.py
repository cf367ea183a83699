"""Counts of turns of phrase that make a reader stop, in the docstrings and comments of the package.

The counts are a thermometer: a sentence that is not counted may still be unclear. `test_prose.py` keeps them from
rising.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "hf_attncal"
# name -> which texts (all, summary, argument, comment), and a pattern in lower case
TURNS = {
    "summary_begins_with_what": ("summary", r"^(what|how|whether|that|of|as|for|to|in|with)\b"),
    "summary_with_what_as_noun": (
        "summary",
        r"\bwhat (a|an|the|it|is|was|are|they|one|each|comes|lies|counts|has|makes|says)\b",
    ),
    "argument_begins_with_preposition": ("argument", r"^(of|as|for|to|in|with|so)\b"),
    "argument_begins_with_what": ("argument", r"^(what|who|whether|how|that)\b"),
    "argument_without_it": ("argument", r"\bwithout (it|one|them),"),
    "that_of": ("all", r"\b(that|those) of\b"),
    "so_many": ("all", r"\b(so|as) (many|much)\b"),
    "too_at_the_end": ("all", r", too[,.;:]"),
    "alone": ("all", r"\balone\b"),
    "rare_words": ("all", r"\b(besides|anew|likewise)\b"),
    "code_that_says": ("all", r"\b(says|tells|knows|believes|hears|is told|is said|are told|are said)\b"),
    "comment_begins_with_preposition": ("comment", r"^(of|that|what|so|as)\b"),
}
VARIABLES = re.compile(
    r"\b(found|told|said|given|asked|seen|known|kept|taken|made|read|one|other|of|its|theirs|ours)\s*(?::[^=]+)?=(?!=)"
)
_SECTION = re.compile(r"(?:Args|Attributes):\n(.*?)(?:\n\n[A-Z]\w+:|\Z)", re.DOTALL)
_ARGUMENT = re.compile(r"\s*[\w*`, ]+: (.*)", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#\s+(\S.*)$")


def texts(source: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each docstring's summary, of its arguments, and of each comment."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node) or ""
        if docstring:
            yield "summary", " ".join(docstring.split("\n\n")[0].split())
        if section := _SECTION.search(docstring):
            for entry in re.split(r"\n(?= {4}[\w*`, ]+:)", "\n" + section[1]):
                if argument := _ARGUMENT.match(entry):
                    yield "argument", " ".join(argument[1].split())
    for line in source.splitlines():
        if (comment := _COMMENT.search(line)) and "Copyright" not in line:
            yield "comment", comment[1]


def counts(folder: Path = PACKAGE) -> dict[str, int]:
    """Return how often each turn of `TURNS` occurs in the Python files of a folder, and variables without a noun."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    everything = [text for source in sources for text in texts(source)]
    turns = {
        name: sum(
            kind in (where, "all") and bool(re.search(pattern, text, re.IGNORECASE)) for where, text in everything
        )
        for name, (kind, pattern) in TURNS.items()
    }
    return turns | {"variables": sum(len(VARIABLES.findall(source)) for source in sources)}


if __name__ == "__main__":
    for name, count in counts(*map(Path, sys.argv[1:])).items():
        print(f"{count:6d} {name}")
