"""The package as it is installed: all of it is in the wheel, and it is of use without its extras."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import hf_attncal
from hf_attncal.io.extras import EXTRAS, ORIGIN, ORIGIN_HINT, install_command

ROOT = Path(__file__).parents[2]
TEMPLATES = {path.name for path in (ROOT / "model_cards").iterdir()}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_pyproject_names_every_room():
    """The list is by hand, as no search finds the templates' folder, which lies elsewhere."""
    rooms = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "hf_attncal").rglob("*.py")}
    assert PYPROJECT["tool"]["setuptools"]["packages"] == sorted(rooms | {"hf_attncal.model_cards"})


def test_the_citation_is_of_this_package_and_version():
    citation, project = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8")), PYPROJECT["project"]
    assert (citation["title"], citation["version"]) == (project["name"], project["version"])
    assert hf_attncal.__version__ == project["version"]
    assert citation["license"] == project["license"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, as a build leaves its traces beside the sources."""
    pytest.importorskip("setuptools", minversion="77")
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in ("hf_attncal", "model_cards"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", wheels, source]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = wheels.iterdir()
    return path


def test_the_wheel_holds_the_code_the_presets_and_the_templates(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    kinds = (
        "*.py",
        "*.jinja",
        "alignment/*.safetensors",
        "checking/*.json",
        "checking/*.yaml",
        "drawing/*.css",
        "drawing/*.mplstyle",
        "figures/*.js",
        "figures/*.yaml",
        "presets/*/*.yaml",
        "ready_aligners/*/*",
    )
    files = [path for kind in kinds for path in (ROOT / "hf_attncal").rglob(kind)]
    code = {path.relative_to(ROOT).as_posix() for path in files}
    assert names == code | {"hf_attncal/py.typed"} | {f"hf_attncal/model_cards/{name}" for name in TEMPLATES}


def test_an_installed_package_finds_its_templates(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "config.json").write_text('{"model_type": "mask_align"}')
    code = """
import hf_attncal
from hf_attncal.hub import write_model_card
print(hf_attncal.__file__)
write_model_card(".", model_name="m", summary="s", training_data="t", example="a ||| b")
from hf_attncal.alignment.pictures import page_head
assert page_head("m").startswith("<!DOCTYPE html>")
"""
    command, environment = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(str(tmp_path / "installed"))
    assert "Mask-Align" in (tmp_path / "README.md").read_text(encoding="utf-8")


# ---- extras ----

# Those that come with transformers and torch are everywhere.
PACKAGES = {package for packages in EXTRAS.values() for package in packages} - {"pyyaml"}


def packages_of(requirements: list[str]) -> tuple[str, ...]:
    return tuple(re.match(r"[\w-]+", requirement).group() for requirement in requirements)


def floors(requirements: list[str]) -> dict[str, str]:
    """Return the lowest version that each requirement allows, by package."""
    return dict(re.match(r"([\w-]+)>=([\d.]+)", requirement).groups() for requirement in requirements)


def test_the_extras_of_pyproject_are_those_that_messages_name():
    stated = {name: packages_of(needed) for name, needed in PYPROJECT["project"]["optional-dependencies"].items()}
    assert {name: stated[name] for name in EXTRAS} == EXTRAS
    assert stated.keys() - EXTRAS.keys() == {"all", "test", "site"}
    assert PYPROJECT["project"]["optional-dependencies"]["all"] == [f"hf_attncal[{','.join(EXTRAS)}]"]
    assert {package for packages in EXTRAS.values() for package in packages} & set(
        packages_of(PYPROJECT["project"]["dependencies"])
    ) == set()


def test_the_lowest_versions_are_those_that_are_run():
    """Check every requirement but torch, whose lowest version has no CPU build on the index, and the tests' own tools.

    What only tests need may be left out of the constraints; if it is there, it stands for its floor too.
    """
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    run = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    needed = floors([*project["dependencies"], *(line for name in EXTRAS for line in extras[name])])
    stated = floors([line for line in extras["test"] if not line.startswith("hf_attncal")]) | needed
    assert needed.keys() - run.keys() == {"torch"}
    assert run.keys() <= stated.keys()
    for name, version in run.items():
        assert f"{version}.".startswith(f"{stated[name]}."), f"{name}>={stated[name]} is stated, {version} is run"


def test_imports_and_requirements_are_the_same():
    """Read off the source; huggingface_hub comes with transformers, which imports sentencepiece for Marian.

    langcodes imports language_data.

    pyarrow comes with datasets, whose columns it holds; docstring_parser with cyclopts, markupsafe with jinja2.

    spaCy is not required of anybody: who names a pipeline of it has it.
    """
    by_others = {"sentencepiece", "language-data"}
    required = set(packages_of(PYPROJECT["project"]["dependencies"])).union(*EXTRAS.values()) - by_others
    imported = set()
    for path in Path(hf_attncal.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.partition(".")[0])
    named = {
        "yaml": "pyyaml",
        "rouge_score": "rouge-score",
        "text_to_num": "text2num",
        "markdown_it": "markdown-it-py",
    }
    others = {named.get(name, name) for name in imported - sys.stdlib_module_names}
    brought = {"huggingface_hub", "pyarrow", "docstring_parser", "markupsafe"}
    assert others - brought - {"hf_attncal"} == required


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Run Python where all is installed that is here, but what an extra alone brings: (code, arguments) -> process."""
    site = tmp_path_factory.mktemp("site")
    files = [file.parts[0] for name in PACKAGES for file in distribution(name).files or ()]
    for entry in Path(yaml.__file__).parents[1].iterdir():
        if entry.name not in files and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}", "HF_HUB_OFFLINE": "1"}

    def run(code: str, *arguments: object) -> subprocess.CompletedProcess:
        command = [sys.executable, "-S", "-c", code, *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


USE = """
import io, sys
from importlib.util import find_spec
folder, model, *names = sys.argv[1:]
print([name for name in {packages} if find_spec(name)])
from hf_attncal.commands import main
def attncal(*arguments, text=""):
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    print(main([*arguments]))
attncal("translate", model, "max_new_tokens=2", text="the house\\n")
attncal("align", "run", model, text="the house ||| a house\\n")
attncal("score", folder + "/links", folder + "/links")
text = folder + "/text"
attncal("align", "select", model, "--source", text, "--target", text, "--gold", folder + "/links", "--output", folder)
import hf_attncal.alignment, hf_attncal.metrics.reliability, hf_attncal.hub
for name in names:
    getattr(hf_attncal, name)
"""


MISS = """
import sys
from hf_attncal.commands import main
folder = sys.argv[1]
text = folder + "/text"
for command in (
    ["score", text, text, "--metric=rouge"],
    ["align", "train", "--source", text, "--target", text, "--output", folder + "/new"],
    ["translate", folder + "/adapter"],
):
    print(main(command))
for module in sys.argv[2:]:
    try: exec(module)
    except ModuleNotFoundError as error: print(error, file=sys.stderr)
"""
ASKED = {
    "from hf_attncal import AttnCalTrainer": ("accelerate", "train"),
    "import hf_attncal.training.settings": ("accelerate", "train"),
    "import hf_attncal.data.corpora": ("accelerate", "train"),
    "import hf_attncal.adapters": ("peft", "adapters"),
    "import hf_attncal.drawing.plots": ("matplotlib", "plot"),
    "import hf_attncal.metrics.rouge": ("rouge-score", "rouge"),
}


@pytest.fixture(scope="module")
def without_extras(bare, saved, tmp_path_factory) -> tuple[Path, list[str], list[str]]:
    """A folder, and what a process printed and what its errors were in `USE` and, behind dashes, in `MISS`."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "links").write_text("0-0 1-1\n")
    (folder / "text").write_text("the house\n")
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    names = [name for name in hf_attncal.__all__ if "Train" not in name and name != "AnnealingCallback"]
    between = f"for stream in sys.stdout, sys.stderr: print('----', file=stream)\nsys.argv[2:] = {list(ASKED)!r}\n"
    done = bare(f"{USE.replace('{packages}', str(PACKAGES))}\n{between}{MISS}", folder, saved, *names)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.split("----\n"), done.stderr.split("----\n")


def test_models_and_aligners_need_no_extra(without_extras):
    """Commands, and all that the package exports besides training, where no package of an extra is installed."""
    folder, (out, _), (err, _) = without_extras
    assert err == ""
    absent, _translation, translated, _links, aligned, *_table, selected = out.splitlines()
    assert (absent, translated, aligned, selected) == ("[]", "0", "0", "0")
    assert "AER" in out
    assert (folder / "alignment.json").is_file()


def test_missing_extras_are_named_in_one_line(without_extras):
    told = [
        f"this needs {package}, which is not installed: pip install '.[{extra}]' in a clone of hf_attncal, or with "
        "its wheel in place of the dot"
        for package, extra in (
            ("rouge-score", "rouge"),
            ("accelerate", "train"),
            ("peft", "adapters"),
            *ASKED.values(),
        )
    ]
    folder, (_, out), (_, err) = without_extras
    assert out == "1\n" * 3
    beginnings = (
        ["attncal: error: "] * 2 + [f"attncal: error: {folder}/adapter cannot be loaded: "] + [""] * len(ASKED)
    )
    ends = ["."] * 2 + [""] * (1 + len(ASKED))
    assert err.splitlines() == [f"{a}{b}{c}" for a, b, c in zip(beginnings, told, ends, strict=True)]
    assert not (folder / "new").exists()


# ---- where it comes from ----


def test_the_demo_installs_what_it_needs_and_the_tests_their_tools(tmp_path):
    """In a new environment; where the tests' tools are, they are kept."""
    commands = {}
    for goal, environment in (("demo", "new"), ("conformance", "new"), ("demo", "old")):
        venv = tmp_path / environment
        if environment == "old":
            venv.mkdir()
            (venv / ".installed").touch()
        run = ["make", "-n", goal, f"VENV={venv}"]
        commands[goal, environment] = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    of_demo = commands["demo", "new"]
    assert '-e ".[train,plot]"' in of_demo
    assert ".[test]" not in of_demo
    assert '-e ".[test]"' in commands["conformance", "new"]
    for told in (of_demo, commands["conformance", "new"]):
        assert "https://download.pytorch.org/whl/cpu" in told
        assert " to fetch, " in told
    assert "pip" not in commands["demo", "old"]


def test_every_install_command_names_the_origin_of_the_package():
    """`pip install hf_attncal` would fetch what a stranger has put on the index under that name, or nothing."""
    folders = ("hf_attncal", "model_cards", "docs", "examples", "configs", "training", "experiments", "benchmarks")
    kinds = {".py", ".jinja", ".md", ".yaml", ".ipynb"}
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in kinds]
    texts = {
        path.name: path.read_text(encoding="utf-8") for path in [*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    }
    found = {name for name, text in texts.items() if re.search(r"pip install ['\"]?hf_attncal\b(?!-)", text)}
    assert not found
    extras = [re.findall(r"pip install ['\"]([^'\"]*)\[", texts[name]) for name in ("README.md", "summarization.md")]
    assert extras == [[ORIGIN], [ORIGIN]]
    metric = (ROOT / "hf_attncal/metrics/evaluate_modules/aer/aer.py").read_text(encoding="utf-8")
    assert f"`{install_command()}` {ORIGIN_HINT}." in re.sub(r'"\s+"', "", metric)  # it is read without the package


def test_readme_has_the_command_that_fetches_no_cuda_before_the_one_that_would():
    first, second = re.findall(r"(?m)^pip install .*$", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert first.partition("#")[0].rstrip() == "pip install torch --index-url https://download.pytorch.org/whl/cpu"
    assert second.startswith(f'pip install "{ORIGIN}[all]"')


# ---- what is known to be unsafe ----

# Package -> the first release without the CVEs that are published of it.
SAFE = {"jinja2": "3.1.6", "nltk": "3.10.4", "sentencepiece": "0.2.1", "tqdm": "4.66.3"}


def test_no_release_with_a_known_vulnerability_is_allowed():
    project = PYPROJECT["project"]
    stated = chain(project["dependencies"], *project["optional-dependencies"].values())
    allowed = {one.name: one.specifier for one in map(Requirement, stated)}
    for package, first in SAFE.items():
        (floor,) = [part for part in allowed[package] if part.operator == ">="]
        assert Version(floor.version) >= Version(first), package
        assert Version(distribution(package).version) in allowed[package], package
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    for package in SAFE.keys() - {"nltk"}:  # which has a line of its own for them
        assert "CVE-" in next(line for line in lines if line.strip().startswith(f'"{package}>=')), package


# ---- types ----


@pytest.mark.slow
def test_a_type_checker_accepts_a_script_and_finds_its_errors(tmp_path):
    pytest.importorskip("mypy")
    script = """
from hf_attncal import AttnCalMarianMTModel, WordAligner
from hf_attncal.inference.translation import translate_texts
aligner = WordAligner.from_pretrained("aligner", device="cpu")
for alignment in aligner.align([("the house", "das Haus")], threshold=0.5):
    reveal_type(alignment)
reveal_type(AttnCalMarianMTModel)
reveal_type(translate_texts(None, None, ["a house"], num_beams=2))
aligner.align([("the house", "das Haus")], treshold=0.5)
"""
    (tmp_path / "script.py").write_text(script)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports",
        "silent",
        "--cache-dir",
        tmp_path / "cache",
        "script.py",
    ]
    run = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True
    )
    revealed = re.findall(r'Revealed type is "(.*)"', run.stdout)
    assert revealed == [
        "hf_attncal.alignment.links.WordAlignment",
        "def (config: hf_attncal.models.configuration_attncal.AttnCalMarianConfig) -> "
        "hf_attncal.models.modeling_attncal_marian.AttnCalMarianMTModel",
        "list[str]",
    ]
    assert re.findall("error: (.*)", run.stdout.rpartition("Found")[0]) == [
        'Unexpected keyword argument "treshold" for "align" of "WordAligner"; did you mean "threshold"?  [call-arg]'
    ]
