"""Repeated words and text unlike that of the calibration; `campaign.py` tries more of them."""

from pathlib import Path

import aligning
import outcomes


def test_repeated_words_and_unlike_text(tmp_path: Path):
    found = aligning.run(tmp_path, full=False)
    assert not outcomes.bad(found)
    assert {row["kind"]: row["survived"] for row in outcomes.table(found)} == {
        aligning.REPEATED: 40,
        aligning.UNLIKE: 40,
    }
