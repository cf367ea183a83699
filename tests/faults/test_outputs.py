"""No output writes over a model, an input or another output; and one that did would be seen."""

from outcomes import bad, table
from outputs import OVER_INPUT, OVER_MODEL, TWICE, TWO_MODELS, WRITERS, _kept, run, written

from hf_attncal.commands import guarded


def test_no_output_writes_over_what_must_stay(tmp_path):
    outcomes = run(tmp_path, full=False)
    assert not bad(outcomes), bad(outcomes)
    assert {row["kind"] for row in table(outcomes)} == {OVER_MODEL, OVER_INPUT, TWICE, WRITERS, TWO_MODELS}


def test_every_option_that_names_an_output_is_tried():
    options = {(command, option) for command, option, _ in written()}
    assert {("align run", "output"), ("align run", "save_adapted"), ("translate", "alignments")} <= options
    assert {("analyze", "report"), ("analyze", "probe"), ("align compare", "page"), ("train", "output")} <= options


def test_an_output_that_is_written_over_a_model_is_seen(tmp_path, monkeypatch):
    for name in ("text", "other"):
        (tmp_path / name).write_text("a b\n")
    (tmp_path / "links").write_text("0-0\n")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    kept = _kept(OVER_MODEL, "align lexicon", {"output": "config.json"}, ".", "config.json")
    assert kept().result == "refused"
    for name in ("hf_attncal.io.gate.check_file", "hf_attncal.commands.guarded.check_file"):
        monkeypatch.setattr(name, lambda *_: None)
    assert guarded.check_file("x") is None
    assert kept().result == "lost"
