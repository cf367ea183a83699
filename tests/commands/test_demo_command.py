"""`attncal demo`: what is refused before anything is trained, and what is shown at once."""

from pathlib import Path

import numpy as np
from PIL import Image

from hf_attncal.commands import main
from hf_attncal.commands.demo import PAGE, draw_pair, packaged_aligner, show_ready

ROOT = Path(__file__).parents[2]


def test_impossible_options_are_refused_at_once(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--output", str(tmp_path / "file")]) == 1
    assert "cannot be a folder" in capsys.readouterr().err


def test_the_picture_in_the_docs_is_that_of_the_demo(tmp_path):
    """Up to the versions of what draws letters."""
    draw_pair(tmp_path / "alignment.png", packaged_aligner())
    drawn, kept = (
        np.asarray(Image.open(path).convert("L"), dtype=float)
        for path in (tmp_path / "alignment.png", ROOT / "docs" / "images" / "alignment.png")
    )
    assert drawn.shape == kept.shape
    assert np.abs(drawn - kept).mean() < 0.5  # of 255
    assert np.abs(255 - kept).mean() > 2  # and there is something


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
