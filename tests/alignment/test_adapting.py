"""An aligner that reads the text at hand: against loops, how far it goes, and what a network does."""

import pytest
import reference
import torch
from aligner_helpers import counting_aligner, tiny_mask_align
from helpers import assert_close

from hf_attncal import WordAligner, align_quick
from hf_attncal.alignment import count_learner
from hf_attncal.alignment.count_learner import IDENTICAL, KNOWN, NEW, CountLearner, adapt_counts
from hf_attncal.commands import main
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.functional_jumps import learned_jumps
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

SIZE = 12
LEARNED = [([1, 2, 3, 1], [4, 5, 4]), ([1, 3], [4, 6]), ([2], [5]), ([3, 1, 2], [6, 4])]
FOREIGN = [([1, 7, 8], [9, 4, 7]), ([8, 2], [9, 5]), ([7], [7]), ([1, 8], [9, 4])]
ENGLISH = ["the old house", "a house", "the dog", "an old dog", "the house is old", "a dog is old", "the old dog runs"]
GERMAN = ["das alte Haus", "ein Haus", "der Hund", "ein alter Hund", "das Haus ist alt", "ein Hund ist alt"]
GERMAN += ["der alte Hund läuft"]
PAIRS = list(zip(ENGLISH, GERMAN, strict=True))
OTHER = [("red wine", "vin rouge"), ("white wine", "vin blanc"), ("red rose", "rose rouge"), ("Paris", "Paris")] * 3


def sides(text):
    return [source for source, _ in text], [target for _, target in text]


def learned() -> HMMAlignModel:
    model = HMMAlignModel(HMMAlignConfig(vocab_size=SIZE, max_jump=2, lexical_prior=0.05)).eval()
    CountLearner(model, *sides(LEARNED)).run((2, 2))
    return model


def table(model) -> dict[tuple[int, int], float]:
    pairs = zip(model.pairs.tolist(), model.counts.tolist(), strict=True)
    return {(pair // SIZE, pair % SIZE): count for pair, count in pairs}


def unknown(model, text) -> list[float]:
    """Return for each pair the share of tokens without a count with a token of the other side."""
    counts, shares = table(model), []
    for s, t in text:
        known = [any(counts.get((x, y), 0) >= 0.5 for y in t) for x in s]
        known += [any(counts.get((x, y), 0) >= 0.5 for x in s) for y in t]
        shares.append(1 - sum(known) / len(known))
    return shares


def slowly_adapted(model, text, weights, passes):
    """Passes over a text by loops: `c + sum of w_n shares`, each pair without its own, damped by half."""
    tables = [[getattr(model, f"{s}_{n}").tolist() for s in ("source", "target")] for n in ("counts", "null_counts")]
    jumps = [model.forward_jumps.tolist(), model.backward_jumps.tolist()]
    slow = reference.SlowHMM(model.config, table(model), *tables, jumps)
    own, mean = [None] * len(text), sum(weights) / len(weights)
    before = [dict(slow.counts), [list(t) for t in slow.totals], [list(t) for t in slow.null_counts], jumps]
    for _ in range(passes):
        counts, totals, nulls = dict(before[0]), [list(t) for t in before[1]], [list(t) for t in before[2]]
        jumped, chances = ([[0.0] * len(jumps[0]) for _ in range(2)] for _ in range(2))
        shares_of_all = []
        for (source, target), mine, weight in zip(text, own, weights, strict=True):
            slow.weight = weight
            found = slow.both(source, target, mine)
            shares = [
                [found[0]["weights"][t][s] * found[1]["weights"][s][t] for s in range(len(source))]
                for t in range(len(target))
            ]
            if mine:
                shares = [[(a + b) / 2 for a, b in zip(*rows, strict=True)] for rows in zip(shares, mine, strict=True)]
            for t, y in enumerate(target):
                nulls[1][y] += weight * max(0.0, 1 - sum(shares[t]))
                for s, x in enumerate(source):
                    counts[x, y] = counts.get((x, y), 0.0) + weight * shares[t][s]
                    totals[0][x] += weight * shares[t][s]
                    totals[1][y] += weight * shares[t][s]
            for s, x in enumerate(source):
                nulls[0][x] += weight * max(0.0, 1 - sum(row[s] for row in shares))
            for side in (0, 1):
                jumped[side] = [a + b for a, b in zip(jumped[side], found[side]["jumps"], strict=True)]
                chances[side] = [a + b for a, b in zip(chances[side], found[side]["chances"], strict=True)]
            shares_of_all.append(shares)
        own = shares_of_all
        slow.counts, slow.totals, slow.null_counts = counts, totals, nulls
        for side in (0, 1):
            new = learned_jumps(torch.tensor(jumped[side]), torch.tensor(chances[side])).tolist()
            slow.jumps[side] = [(1 - mean) * a + mean * b for a, b in zip(slow.jumps[side], new, strict=True)]
    return slow


@pytest.mark.parametrize("weight", [*(pytest.param(weight, marks=pytest.mark.slow) for weight in (0.3, 1.0)), None])
def test_adapting_equals_the_loops(weight):
    """Shares are kept in half precision, so 2^-11 of each may be lost."""
    model = learned()
    model.config.identical_prior = IDENTICAL
    text = [*FOREIGN[:3], LEARNED[1], ([1, 3, 7, 2], [4, 6, 9, 5])]
    weights = [min(1.0, max(0.0, (share - KNOWN) / (NEW - KNOWN))) for share in unknown(model, text)]
    assert len(set(weights)) > 2
    slow = slowly_adapted(model, text, weights if weight is None else [weight] * len(text), passes=2)
    before = table(model)
    adapted = adapt_counts(model, *sides(text), weight, passes=2)
    assert adapted.pairs == len(text)
    found = table(model)
    assert before.keys() <= found.keys()
    for pair, count in slow.counts.items():
        assert found.get(pair, 0.0) == pytest.approx(count, abs=0.011), pair  # what is below 0.01 is not kept
    for side, name in enumerate(("source", "target")):
        assert_close(getattr(model, f"{name}_counts"), torch.tensor(slow.totals[side]), 4e-3, name)
        assert_close(getattr(model, f"{name}_null_counts"), torch.tensor(slow.null_counts[side]), 4e-3, name)
    for side, jumps in enumerate((model.forward_jumps, model.backward_jumps)):
        assert_close(jumps, torch.tensor(slow.jumps[side]), 2e-3, f"jumps {side}")


def test_the_weight_follows_from_the_share_of_new_tokens():
    """What has a count with no token of the other side is new; a text without much of it changes nothing."""
    model = learned()
    shares, sizes = unknown(model, FOREIGN), [len(s) + len(t) for s, t in FOREIGN]
    adapted = adapt_counts(model, *sides(FOREIGN))
    assert adapted.unknown == pytest.approx(
        sum(share * size for share, size in zip(shares, sizes, strict=True)) / sum(sizes)
    )
    weights = [min(1.0, max(0.0, (share - KNOWN) / (NEW - KNOWN))) for share in shares]
    assert adapted.weight == pytest.approx(sum(w * size for w, size in zip(weights, sizes, strict=True)) / sum(sizes))
    model = learned()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    adapted = adapt_counts(model, *sides(LEARNED))
    assert (adapted.unknown < KNOWN, adapted.weight) == (True, 0.0)
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    assert model.config.identical_prior == 0
    assert adapt_counts(model, [[]], [[1]]).weight == 0


def test_very_long_pairs_are_adapted_to_in_parts(monkeypatch):
    monkeypatch.setattr(count_learner, "_MAX_UNCUT_CELLS", 11)
    monkeypatch.setattr(count_learner, "_CELLS_OF_PART", 4)
    model, text = learned(), [*FOREIGN, ([9] * 9, [7] * 3)]
    assert adapt_counts(model, *sides(text), weight=1.0).pairs == len(text)
    assert table(model)[9, 7] > 0


@pytest.mark.parametrize(
    ("option", "message"), [({"passes": 0}, "`passes` must be >= 1"), ({"weight": 2}, "`weight`")]
)
def test_settings_out_of_range(option, message):
    with pytest.raises(ValueError, match=message):
        adapt_counts(learned(), *sides(FOREIGN), **option)


def test_an_aligner_learns_from_the_text_and_can_be_saved(tmp_path):
    aligner = counting_aligner(PAIRS)
    before = aligner.align(OTHER)
    adapted = aligner.adapt(OTHER)
    assert adapted.weight > 0.5
    after = aligner.align(OTHER)
    right, wrong = ([sum(link in one.links for one in found[:2] for link in links) for found in (before, after)]
                    for links in (((0, 1), (1, 0)), ((0, 0), (1, 1))))  # fmt: skip
    assert right[1] - wrong[1] > right[0] - wrong[0]
    aligner.model.save_pretrained(tmp_path)
    aligner.tokenizer.save_pretrained(tmp_path)
    assert WordAligner.from_pretrained(tmp_path, device="cpu").align(OTHER) == after
    with pytest.raises(ValueError, match="only a statistical aligner"):
        WordAligner(tiny_mask_align(aligner.tokenizer), aligner.tokenizer).adapt(OTHER)


# ---- without a model ----


def test_quick_links_of_a_text_by_itself():
    text = PAIRS * 3
    found = align_quick(text)
    assert found[0].links == ((0, 0), (1, 1), (2, 2))
    assert found == align_quick(text)
    assert align_quick([*text, ("", "leer")])[-1].links == ()
    same = [(source, source) for source in ENGLISH]
    assert all(one.links == tuple((i, i) for i in range(len(one.source))) for one in align_quick(same))
    assert [one.links for one in align_quick([("", "a")])] == [()]
    (raw,) = align_quick([("the house, 水", "das Haus, 水")], tokenize=True, offsets=True)
    assert (3, 3) in raw.links


def test_the_commands_do_what_the_functions_do(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for name, text in (("learned", PAIRS), ("other", OTHER)):
        for side, lines in zip(("s", "t"), zip(*text, strict=True), strict=True):
            (tmp_path / f"{name}.{side}").write_text("\n".join(lines) + "\n")
    quick = [one.pharaoh() for one in align_quick(OTHER)]
    assert main(["align", "quick", "--source", "other.s", "--target", "other.t", "--output", "links"]) == 0
    assert (tmp_path / "links").read_text().splitlines() == quick
    quick = ["align", "quick", "--source=other.s", "--target=other.t", "--output=links"]
    assert main([*quick, "--with-source=learned.s", "--with-target=learned.t"]) == 0
    together = align_quick([*OTHER, *PAIRS])[: len(OTHER)]
    assert (tmp_path / "links").read_text().splitlines() == [one.pharaoh() for one in together]
    sources, targets = zip(*PAIRS, strict=True)
    beside = align_quick(OTHER, with_source=sources, with_target=targets)
    assert [one.links for one in beside] == [one.links for one in together]
    for one, other in zip(beside, together, strict=True):  # of another batch
        assert one.scores == pytest.approx(other.scores, abs=1e-6)
    assert main([*quick, "--with-source=learned.s"]) == 1
    assert "--with-source and --with-target go together" in capfd.readouterr().err
    aligner = counting_aligner(PAIRS)
    aligner.model.save_pretrained(tmp_path / "model")
    aligner.tokenizer.save_pretrained(tmp_path / "model")
    run = ["align", "run", "model", "--source", "other.s", "--target", "other.t"]
    assert main([*run, "--output", "links", "--adapt"]) == 0
    aligner.adapt(OTHER)
    expected = [one.pharaoh() for one in aligner.align(OTHER)]
    assert (tmp_path / "links").read_text().splitlines() == expected
    assert main([*run, "--adapt", "--shard", "1/2", "--output", "parts"]) == 1
    errors = capfd.readouterr().err
    assert "--shard cannot go with --adapt" in errors
