"""Count the lines of code that a reader of a command may have to hold: what it reaches by imports in the package.

    python experiments/reach.py
    python experiments/reach.py align_quick

Imports inside functions and those for type checkers count, and so does a string that names a module, such as
"hf_attncal.training.job:Job": it is an import in another spelling. Only `TABLES` may name without reaching. With a
command the files that it reaches are listed, the longest first.
"""

import argparse
import ast
import io
import re
import tokenize
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "hf_attncal"
# Files that say by a string which module does what.
TABLES = {"hf_attncal", "hf_attncal.command_table", "hf_attncal.families", "hf_attncal.layouts"}
_NAME = re.compile(r"(hf_attncal(?:\.\w+)+)(?::[\w.]+)?")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(source: str) -> int:
    """Return the number of lines of a Python source that hold code; docstrings, comments and blank lines do not."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


@cache
def files() -> dict[str, Path]:
    """Return the file of each module of the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = (PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules of the package that a module imports, and the packages that these are in."""
    path = files()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            name = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            found |= {name} | {f"{name}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and module not in TABLES:
            found |= {match[1] for match in [_NAME.fullmatch(node.value)] if match}
    return frozenset(found & files().keys() - {module, PACKAGE.name})


def reach(module: str) -> set[str]:
    """Return the modules that a module reaches by imports, itself included."""
    seen, waiting = {module}, [module]
    while waiting:
        new = imports(waiting.pop()) - seen
        seen |= new
        waiting += new
    return seen


@cache
def lines(module: str) -> int:
    """Return the lines of code of a module."""
    return lines_of_code(files()[module].read_text(encoding="utf-8"))


def reached_lines(module: str) -> int:
    """Return the lines of code that a module reaches."""
    return sum(map(lines, reach(module)))


def commands() -> dict[str, str]:
    """Return the module of each command."""
    start = "hf_attncal.commands."
    return {name.removeprefix(start): name for name in sorted(files()) if name.startswith(start)}


def module_of(command: str) -> str:
    """Return the module of a command by its name on the command line, such as `align run`."""
    table = ast.parse((PACKAGE / "command_table.py").read_text(encoding="utf-8"))
    (rows,) = [node.value for node in table.body if isinstance(node, ast.Assign) and node.targets[0].id == "COMMANDS"]
    return ast.literal_eval(rows)[command].partition(":")[0]


def main(arguments: list[str] | None = None) -> None:
    """Print the lines that each command reaches, or the files of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("command", nargs="?", choices=commands(), metavar="COMMAND")
    options = parser.parse_args(arguments)
    if options.command is None:
        for name, module in commands().items():
            print(f"{reached_lines(module):6}  {len(reach(module)):3} files  {name}")
        return
    for module in sorted(reach(commands()[options.command]), key=lines, reverse=True):
        print(f"{lines(module):5}  {module}")


if __name__ == "__main__":
    main()
