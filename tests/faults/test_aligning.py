"""Each word that is there several times is linked in order; `campaign.py` tries more of them."""

from pathlib import Path

import aligning
import outcomes


def test_repeated_words_are_linked_in_order(tmp_path: Path):
    found = aligning.run(tmp_path, full=False)
    assert not outcomes.bad(found)
    assert len(found) == 40
