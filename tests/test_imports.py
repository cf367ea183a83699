"""Imports run one way, files published on the Hub need no others, and `import hf_attncal` is light.

The rules are read off the source: a forbidden import inside a function is found, too.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name

import pytest
from shipped import SHIPPED

import hf_attncal.alignment
import hf_attncal.checking
from hf_attncal.command_table import COMMANDS

PACKAGE = Path(hf_attncal.__file__).parent
MODELS = PACKAGE / "models"

# The core: a room imports rooms of rows above its own, and of no other.
CORE = (
    ("command_table", "layouts", "_version"),
    ("io",),
    ("drawing",),
    ("models", "data"),
    ("families",),
    ("metrics",),
    ("inference",),
    ("hub",),
    ("adapters",),
    ("training",),
)
# The wings stand on all of the core, and each on these others; the core imports none.
WINGS = {"alignment": (), "checking": ("alignment",), "report": ("alignment", "checking"), "speech": ()}
# What starts the work, on top of everything.
TOP = (("commands",), ("__main__",))


def allowed() -> dict[str, set[str]]:
    """Return the rooms that each room may import."""
    rooms: dict[str, set[str]] = {}
    for row in CORE:
        rooms |= {room: set(rooms) for room in row}
    core = set(rooms)
    rooms |= {wing: core | set(others) for wing, others in WINGS.items()}
    for row in TOP:
        rooms |= {room: set(rooms) for room in row}
    return rooms


@dataclass(frozen=True)
class Import:
    """`from <dots><module> import <name>`; `import a.b` has no dots and no name."""

    dots: int
    module: str
    name: str | None = None

    def __str__(self) -> str:
        path = "." * self.dots + self.module
        return f"import {path}" if self.name is None else f"from {path} import {self.name}"


def imports_of(source: str) -> list[Import]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [Import(node.level, node.module or "", alias.name) for alias in node.names]
    return found


# ---- what travels to the Hub ----


def shipped_problems(source: str) -> list[str]:
    """Return the reasons why a file of models/ would fail after loading with `trust_remote_code=True`."""
    problems = []
    for found in imports_of(source):
        if found.dots == 0:
            top = found.module.partition(".")[0]
            if top not in SHIPPED and top not in sys.stdlib_module_names:
                problems.append(f"{found}: only torch, transformers and the standard library are there")
        elif found.dots > 1 or not found.module or "." in found.module:
            problems.append(f"{found}: only `from .name import ...` is copied")
        elif not (MODELS / f"{found.module}.py").exists():
            problems.append(f"{found}: there is no such file")
    # transformers finds what to copy with a regular expression over the text, docstrings included.
    seen = set(re.findall(r"^\s*from\s+\.(\S+)\s+import", source, re.MULTILINE))
    problems += [
        f"the text of a docstring reads like `from .{name} import`"
        for name in sorted(
            seen - {"." * (found.dots - 1) + found.module for found in imports_of(source) if found.dots}
        )
    ]
    return problems


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.py")), ids=lambda path: path.name)
def test_a_shipped_file_imports_nothing_that_stays_behind(path):
    assert shipped_problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted(MODELS.glob("[!_]*.py")), ids=lambda path: path.name)
def test_a_shipped_file_names_its_licence(path):
    """It is published without LICENSE. Transformers' tests also read the year, and skip some before 2023."""
    header = path.read_text(encoding="utf-8").partition('"""')[0]
    assert re.match(r"# Copyright 20(2[3-9]|[3-9]\d) The hf_attncal authors\.\n", header)
    licence = (MODELS.parents[1] / "LICENSE").read_text(encoding="utf-8").partition("[name of copyright owner]")[2]
    assert " ".join(header.replace("#", "").split()).endswith(" ".join(licence.split()))


def test_the_models_room_is_flat_and_its_init_defines_nothing():
    assert [path for path in MODELS.iterdir() if path.is_dir() and path.name != "__pycache__"] == []
    tree = ast.parse((MODELS / "__init__.py").read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]


# ---- one way ----


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
ROOMS = {room_of(path) for path in SOURCES}


# A name in a string is an import in another spelling. Only these tables, and what a package offers lazily, may name.
TABLES = {"command_table.py", "families.py", "layouts.py"}
NAME = re.compile(r"(hf_attncal(?:\.\w+)+)(?::[\w.]+)?")


def names_in_strings(source: str, path: Path) -> set[str]:
    """Modules of this package that a file names in a string constant, such as "hf_attncal.data.words:WordTokens"."""
    if path.relative_to(PACKAGE).as_posix() in TABLES or path.name == "__init__.py":
        return set()
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    found = {match[1] for text in texts if isinstance(text, str) and (match := NAME.fullmatch(text))}
    return found - {file_name(path)}


def imported_rooms(source: str, path: Path) -> set[str]:
    """Rooms of this package that a file imports, or names in a string."""
    parents = ("hf_attncal", *path.relative_to(PACKAGE).parent.parts)
    rooms = {name.split(".")[1] for name in names_in_strings(source, path)} & ROOMS
    for found in imports_of(source):
        parts = found.module.split(".") if found.module else []
        if found.dots:
            parts = [*parents[: len(parents) - found.dots + 1], *parts]
        if parts[:1] == ["hf_attncal"]:
            # `from hf_attncal import X` names a room or a public class; the package's own `__init__` is no room.
            room = parts[1] if len(parts) > 1 else found.name
            if room in ROOMS:
                rooms.add(room)
    return rooms - {room_of(path)}


def arrows() -> dict[str, set[str]]:
    found = defaultdict(set)
    for path in SOURCES:
        found[room_of(path)] |= imported_rooms(path.read_text(encoding="utf-8"), path)
    return found


def test_every_room_has_its_place():
    assert set(allowed()) == ROOMS


def test_imports_run_one_way_and_the_core_imports_no_wing():
    may = allowed()
    assert [f"{room} imports {other}" for room, others in arrows().items() for other in others - may[room]] == []


def test_a_name_in_a_string_is_an_import():
    """Elsewhere than in the tables nothing is imported by its name."""
    named = {
        path.relative_to(PACKAGE).as_posix(): names_in_strings(path.read_text(encoding="utf-8"), path)
        for path in SOURCES
    }
    assert {path: names for path, names in named.items() if names} == {}


def test_no_folder_has_the_name_of_a_public_function():
    """Importing it would put the module in the place of the function."""
    assert ROOMS & set(hf_attncal.__all__) == set()


def file_name(path: Path) -> str:
    """`hf_attncal.data.words` of a file; a folder's `__init__` has the name of the folder."""
    parts = ("hf_attncal", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_files(source: str, path: Path, files: set[str]) -> set[str]:
    """Names of those of `files` that a file imports, at its top or in a function, or names in a string."""
    parents = ("hf_attncal", *path.relative_to(PACKAGE).parent.parts)
    names = names_in_strings(source, path)
    for found in imports_of(source):
        module = found.module
        if found.dots:
            module = ".".join([*parents[: len(parents) - found.dots + 1], *([module] if module else [])])
        whole = f"{module}.{found.name}"
        names.add(whole if whole in files else module)
    return names & files - {file_name(path)}


def circle_of(imports: dict[str, set[str]]) -> list[str]:
    """Files that import each other in a circle, the first one again at the end; empty if there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle():
    paths = {file_name(path): path for path in PACKAGE.rglob("*.py")}
    # The package's own `__init__` stands above all: what it offers it imports when it is used.
    del paths["hf_attncal"]
    imports = {
        name: imported_files(path.read_text(encoding="utf-8"), path, set(paths)) for name, path in paths.items()
    }
    assert circle_of(imports) == []


def named_in(source: str) -> list[str]:
    """Names of classes and functions of this package that a file keeps as text, to import them when they are used."""
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and re.fullmatch(r"hf_attncal[\w.]*:\w+", text)]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in sorted(set(named_in(path.read_text(encoding="utf-8"))))
    ],
)
def test_names_in_a_file_exist(path, name):
    assert callable(resolve_name(name))


@pytest.mark.parametrize(
    "package", [hf_attncal, hf_attncal.alignment, hf_attncal.checking], ids=lambda package: package.__name__
)
def test_type_checkers_see_lazy_imports(package):
    """`__getattr__` imports it lazily; without the imports for type checkers everything would be `Any`."""
    (block,) = [node for node in ast.parse(Path(package.__file__).read_text()).body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    told = {found.name: found.module for node in block.body for found in imports_of(ast.unparse(node))}
    assert told == package._LAZY


# ---- names ----

# Where a program begins: the command, the script of a process without this package.
BEGINNINGS = {"main"}


def defined_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """Public classes and functions that several files define at their top, each with those files."""
    places = defaultdict(list)
    for file, source in sources.items():
        for node in ast.parse(source).body:
            for defined in ast.walk(node) if isinstance(node, ast.If | ast.Try) else [node]:
                if isinstance(defined, ast.ClassDef | ast.FunctionDef) and not defined.name.startswith("_"):
                    places[defined.name].append(file)
    return {name: files for name, files in places.items() if len(files) > 1 and name not in BEGINNINGS}


def test_a_public_name_has_one_meaning():
    assert defined_twice({file_name(path): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}) == {}


# ---- light ----


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(process.stdout.split())


# accelerate is not among them: transformers imports it with every model.
NOT_FOR_MODELS = {"matplotlib", "datasets", "evaluate", "sacrebleu", "peft", "rich"}


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import hf_attncal", {*NOT_FOR_MODELS, "torch", "transformers", "numpy"}),
        # This registers, and so imports, every model.
        pytest.param("import hf_attncal, transformers", NOT_FOR_MODELS, marks=pytest.mark.slow),
    ],
)
def test_importing_the_package_loads_nothing_heavy_that_models_do_not_need(statement, heavy):
    modules = modules_after(statement)
    by_itself = modules_after("import transformers") if "transformers" in statement else set()  # older ones load rich
    assert (heavy - by_itself) & modules == set()
    assert ("hf_attncal.models.modeling_mask_align" in modules) == ("torch" in modules)


def test_analysis_loads_without_matplotlib():
    assert "matplotlib" not in modules_after("import hf_attncal.metrics.reliability, hf_attncal.alignment")


def test_the_functions_of_commands_load_without_anything_heavy():
    """`attncal --help` and `from hf_attncal import check` do not wait for torch."""
    loaded = modules_after("from hf_attncal.commands import app, main; app.app_of(list(app.COMMANDS))")
    assert loaded & {"torch", "transformers", "numpy", "datasets", "matplotlib", "peft"} == set()


def test_each_command_is_a_public_function():
    for name, function in COMMANDS.items():
        public = function.rpartition(":")[2]
        assert getattr(hf_attncal, public).__wrapped__ is resolve_name(function), name  # behind the gate


def test_no_test_module_imports_another():
    """Tests share helper files: the tests of an imported module could run twice, or see what it changes."""
    tests = Path(__file__).parent
    names = {path.stem for path in tests.rglob("test_*.py")}
    found = [
        f"{path.relative_to(tests)}: {imported}"
        for path in sorted(tests.rglob("test_*.py"))
        for imported in imports_of(path.read_text(encoding="utf-8"))
        if imported.module.rpartition(".")[2] in names or imported.name in names
    ]
    assert not found
