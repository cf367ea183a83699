"""Repeated words and text unlike that of the calibration; `campaign.py` tries more of them."""

from pathlib import Path

import alignments
import outcomes


def test_repeated_words_and_unlike_text(tmp_path: Path):
    found = alignments.run(tmp_path, full=False)
    assert not outcomes.bad(found)
    assert {row["kind"]: row["survived"] for row in outcomes.table(found)} == {
        alignments.REPEATED: 40,
        alignments.UNLIKE: 40,
    }
