"""The tables of belief by frequency: one for all words is that of the package, and bands without links follow it."""

import pytest
import torch

from hf_attncal.alignment.belief import Belief


def counted(belief, cells, linked):
    belief.count(belief.bins(cells), linked)
    belief.learn()
    return belief


def test_one_table_for_all_words_is_that_of_the_package(experiment):
    banded = experiment("belief_by_frequency")
    chance = torch.Generator().manual_seed(2)
    cells, linked = torch.rand(2, 400, generator=chance) * 0.99
    bands = torch.randint(banded.BANDS**2, (400,), generator=chance)
    plain = counted(Belief(), cells, linked)
    one = counted(banded.BandedBelief(), cells + bands, linked)
    torch.testing.assert_close(one.ratio, plain.ratio, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        one.factor(one.bins(cells + bands)), plain.factor(plain.bins(cells)), rtol=1e-3, atol=1e-4
    )
    assert one.trust == pytest.approx(plain.trust, rel=1e-4)


@pytest.mark.parametrize("of", ["rarer", "sides"])
def test_words_without_links_have_the_table_of_all(experiment, of):
    """Only words of band 0 were read: theirs is what was counted, those of others that of all."""
    banded = experiment("belief_by_frequency")
    cells = torch.linspace(0.001, 0.98, 300)
    found = counted(banded.BandedBelief(banded.Way(of)), cells, cells)
    last = banded.BANDS**2 - 1
    torch.testing.assert_close(found.tables[last], found.ratio, rtol=1e-4, atol=1e-5)
    assert (found.tables[0] - found.tables[last]).abs().max() > 0.1
