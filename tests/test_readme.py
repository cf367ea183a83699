"""README and docs as a reader works through them: every Python block runs as it stands, and so do the commands that
need no more than two files of text, their training cut down to two steps."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import sample_folder
from english_german import generate_pairs, write_pairs

import hf_attncal
from hf_attncal import AttnCalMarianMTModel
from hf_attncal.commands import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A command with one of these is for the shell, needs data that are not at hand, or minutes; test_docs.py parses it.
NOT_HERE = re.compile(r"[|<>]|\bDIR\b|data/|NAME|--self-test")


def blocks(document: Path) -> list[tuple[str, str]]:
    """Language and text of every block of code."""
    return BLOCK.findall(document.read_text(encoding="utf-8"))


def here_documents(block: str) -> dict[str, str]:
    """Names and texts of the files that a shell block writes with `cat`."""
    return dict(re.findall(r"^cat > (\S+) <<END\n(.*?)^END$", block, re.MULTILINE | re.DOTALL))


def commands(block: str) -> list[list[str]]:
    """The arguments of every `attncal` in a shell block that can run in a reader's folder."""
    lines = [line.partition("  #")[0] for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("attncal ") and not NOT_HERE.search(line)]


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample_folder")
    sample_folder.lay_out(folder)
    return folder


@pytest.fixture
def work_through(laid_out, tmp_path, monkeypatch):
    """Run all blocks of a document, in their order and in one place; returns the names that its Python leaves.

    Args of what is returned: the document, and what its commands must have written.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    for path in laid_out.iterdir():
        Path(path.name).symlink_to(path)

    def run(document: Path, *written: str) -> dict:
        namespace: dict = {}
        for language, text in blocks(document):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if language == "python":
                    exec(compile(text, document.name, "exec"), namespace)
                for name, content in here_documents(text).items():
                    Path(name).write_text(content, encoding="utf-8")
                for command in commands(text) if language == "bash" else ():
                    small = next(
                        (more for name, more in sample_folder.SMALL.items() if " ".join(command).startswith(name)), []
                    )
                    assert main([*command, *small]) == 0, f"{document.name}: attncal {shlex.join(command)}"
        assert [name for name in written if not Path(name).exists()] == []
        return namespace

    return run


def test_readme(work_through):
    work_through(ROOT / "README.md", "gated", "translator", "adapter", "aligner", "pairs.html")
    assert len(Path("translations.txt").read_text().splitlines()) == len(Path("source.txt").read_text().splitlines())
    assert len(Path("links.txt").read_text().splitlines()) == len(Path("source.txt").read_text().splitlines())
    assert Path("report.html").stat().st_size > 10_000
    sizes = {path.name: path.stat().st_size for path in Path("figures").glob("*.png")}
    assert sizes
    assert min(sizes.values()) > 1000


def test_the_first_screen_prints_what_it_shows(tmp_path):
    """The blocks run as if pasted into a shell and then into Python."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shell, printed = re.search(
        r"^```bash\n(cat .*?)^```\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    ).groups()
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    options = {"cwd": tmp_path, "env": os.environ | {"PATH": path}, "capture_output": True, "text": True}
    ran = subprocess.run(["bash", "-e"], input=shell, check=False, **options)
    assert (ran.stdout, ran.stderr, ran.returncode) == (printed, "", 0)
    (python,) = [code for language, code in blocks(ROOT / "README.md") if language == "python" and "print(" in code]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(python, {})
    assert python.endswith(f"  # {out.getvalue()}")


def test_readme_is_short_and_names_the_wheel_of_this_version():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 800
    assert f"hf_attncal-{hf_attncal.__version__}-py3-none-any.whl" in text


@pytest.mark.slow
def test_models(work_through):
    names = work_through(ROOT / "docs" / "models.md", "quick", "translations.jsonl", "links.txt")
    assert names["trainer"].state.global_step > 0
    assert names["outputs"].calibration_masks[-1].shape[0] == 1
    assert names["fields"].source_receptive_fields.shape == (1, *names["fields"].cross_attentions[0].shape[2:])
    assert names["attended"].cross_attentions[0].shape[:2] == (2, 1)
    assert names["details"].attention.shape[1:] == (len(names["target"].split()), len(names["source"].split()))


def test_adapters(work_through):
    names = work_through(ROOT / "docs" / "adapters.md", "adapter/results.json", "translations.txt", "links.txt")
    assert names["outputs"].calibration_masks[-1].shape[:2] == (1, 2)
    small, full = (Path(name, "adapter_model.safetensors").stat().st_size for name in ("small", "adapter"))
    assert small < 0.7 * full  # the header of the file does not shrink
    assert isinstance(names["full"], AttnCalMarianMTModel)


@pytest.mark.slow
def test_alignment(work_through, laid_out, capsys):
    shutil.copytree(laid_out / sample_folder.BASE, "model")  # what `attncal train` leaves
    work_through(ROOT / "docs" / "alignment.md", "tuned", "pairs.html", "model/alignment.json")
    assert "AER" in capsys.readouterr().out


def test_check(work_through):
    for side in ("source.txt", "target.txt"):
        Path(side).unlink()
    write_pairs(generate_pairs(240, seed=6), Path("source.txt"), Path("target.txt"))  # an alarm needs 200
    names = work_through(ROOT / "docs" / "check.md", "checker/check.json", "worst.html")
    lines = Path("marked.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(Path("dev.source.txt").read_text(encoding="utf-8").splitlines())
    assert all(line.count("\t") == 1 for line in lines)
    assert 0 < names["verdict"].omission < 1
    assert len(names["verdict"].source_words) == 6


def test_data(work_through):
    names = work_through(ROOT / "docs" / "data.md")
    assert Path("captions.en").read_text() == "".join(f"{line}\n" for line in names["dataset"]["en"])


def test_language(work_through):
    names = work_through(ROOT / "docs" / "language.md", "language/results.json")
    assert names["fields"].shape == (1, *names["generated"].shape[1:] * 2)


def test_summarization(work_through):
    names = work_through(ROOT / "docs" / "summarization.md", "summariser/results.json", "summaries.txt")
    assert names["score"].intervals["rouge1"][0] < names["score"].rouge1


@pytest.mark.slow
def test_analysis(work_through, laid_out):
    shutil.copytree(laid_out / sample_folder.BASE, "model")  # what `attncal train` leaves
    names = work_through(ROOT / "docs" / "analysis.md", "report.html", "figures/report.json")
    assert names["words"].shape == (3, 3)  # of the shorter pair, the last
    assert Path("attributions.png").stat().st_size > 1000
    assert names["judged"].score("alti").interval is not None
    assert names["scored"].score.interval is not None
    assert names["observed"].tags == ("word", "mark")
    assert Path("attention_by_group.png").stat().st_size > 1000


def test_no_document_with_python_is_left_out():
    named = ("README", "models", "adapters", "alignment", "analysis", "check", "data", "language", "summarization")
    elsewhere = ("observers",)  # tests of adapters and of speech run its parts
    tested = {f"{name}.md" for name in (*named, *elsewhere)}
    assert {path.name for path in DOCUMENTS if "python" in dict(blocks(path))} == tested
