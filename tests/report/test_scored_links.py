"""Links by methods of attribution, and their errors, against loops over words."""

import math

import pytest
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, text_model

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.report.attribution import attribute, score_attributions

GOLD = Gold(list(zip(SOURCES, TARGETS, strict=True)), [GoldAlignment(pair.links, pair.links) for pair in PAIRS])
METHODS = ("alti", "attention", "occlusion")


def links_of(model, method: str) -> list[set]:
    found: list[set] = [set() for _ in SOURCES]
    for one in attribute(model, bpe_tokenizer(), SOURCES, TARGETS, method):
        for j, row in enumerate(one.words().tolist()):
            best = max(range(len(row)), key=row.__getitem__)
            if row[best] > 0:
                found[one.index].add((best, j))
    return found


@pytest.mark.parametrize("kind", ["stock", "ours"])
def test_links_and_errors_are_those_of_the_loops(kind):
    model = text_model("marian", kind)
    scored = score_attributions(model, bpe_tokenizer(), GOLD, METHODS, batch_size=2, bootstrap=50)
    assert tuple(scored) == METHODS
    for method, found in scored.items():
        links = links_of(model, method)
        assert found.links == links
        hits = sum(len(of & pair.sure) + len(of & pair.possible) for of, pair in zip(links, GOLD.links, strict=True))
        aer = 1 - hits / sum(len(of) + len(pair.sure) for of, pair in zip(links, GOLD.links, strict=True))
        assert math.isclose(found.score.aer, aer)
        low, high = found.score.interval
        assert low <= aer <= high


def test_nothing_to_score_is_refused():
    with pytest.raises(ValueError, match=r"`gold`.*got none"):
        score_attributions(text_model("marian", "stock"), bpe_tokenizer(), Gold([], []), METHODS)
