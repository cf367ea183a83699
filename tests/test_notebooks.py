"""The notebooks of examples/ run from their first cell to their last, with a reader's files and tiny models."""

import contextlib
import io
from pathlib import Path

import pytest
import sample_folder

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path):
    """Run a notebook in a reader's folder; returns what its cells printed, and how many pictures they drew."""
    sample_folder.lay_out(tmp_path)

    def run(name: str, **parameters) -> tuple[str, int]:
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        (place,) = [n for n, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ())]
        lines = [f"{key} = {value!r}" for key, value in parameters.items()]
        assert all(key in notebook.cells[place].source for key in parameters)
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell("\n".join(lines)))
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
        pictures = sum("image/png" in output.get("data", ()) for output in outputs)
        return "".join(output.text for output in outputs if output.output_type == "stream"), pictures

    return run


@pytest.mark.slow
def test_translation(run, tmp_path):
    printed, pictures = run("translation", SETTINGS=sample_folder.SMALL["train"])
    assert "2 steps; BLEU on held-out text: " in printed
    assert "layer 1: " in printed
    assert pictures == 1
    assert (tmp_path / "model" / "config.json").is_file()


@pytest.mark.slow  # the translation notebook runs always
def test_adapters(run, tmp_path):
    printed, pictures = run("adapters", BASE=sample_folder.BASE, SETTINGS=sample_folder.SMALL["adapt"])
    assert "adapted: " in printed
    assert "layer 1: " in printed
    assert pictures == 1
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()


@pytest.mark.slow
def test_observers(run, tmp_path):
    printed, _ = run("observers", BASE=sample_folder.BASE)
    assert "the same tokens: True" in printed
    assert (tmp_path / "observer" / "adapter_config.json").is_file()


@pytest.mark.slow
def test_word_alignment(run, tmp_path):
    printed, _ = run("word_alignment", SETTINGS=["tokenizer.vocab_size=150"])
    assert "mean score of a pair: 0." in printed
    assert len((tmp_path / "links.txt").read_text().splitlines()) == 80


@pytest.mark.parametrize("name", ["corpus", "localisation", "few_sentences"])
def test_a_notebook_of_five_minutes_prints_what_it_shows(name, tmp_path, monkeypatch):
    """It runs in this process without a kernel, trains nothing, and takes a second or two."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for cell in nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(cell.source, name, "exec"), names)
            shown = "".join(output.text for output in cell.outputs if output.output_type == "stream")
            assert printed.getvalue() == shown


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_nothing_of_the_machine_that_ran_it(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert "/home/" not in text
    assert "site-packages" not in text
    assert '"stderr"' not in text
