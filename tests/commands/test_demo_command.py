"""`attncal demo`: what is refused before anything is trained, and what is shown at once."""

from hf_attncal.commands import main
from hf_attncal.commands.demo import PAGE, show_ready


def test_impossible_options_are_refused_at_once(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--output", str(tmp_path / "file")]) == 1
    assert "cannot be a folder" in capsys.readouterr().err


def test_its_first_part_is_printed_and_kept(tmp_path, capsys):
    verdicts = show_ready(tmp_path)
    told = capsys.readouterr().out
    assert [verdict.flagged[:1] for verdict in verdicts] == [(), ("omission",), ("changed",), ("addition",)]
    assert "1. fine" in told
    assert "[-87-]" in told
    assert "{+78+}" in told
    assert "Schwester=sister" in told
    page = (tmp_path / "checked.html").read_text(encoding="utf-8")
    assert page.count("<article") == len(PAGE)
    assert (tmp_path / "alignment.html").read_text(encoding="utf-8").count("<section") == len(PAGE)
