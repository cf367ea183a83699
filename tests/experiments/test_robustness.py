"""The robustness suite: measures against slow loops; whole runs on a tiny checkpoint and a stand-in for eflomal."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import scatter

from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.data.synthetic.english_german import generate_pairs
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.modeling_mask_align import MaskAlignModel

ROOT = Path(__file__).resolve().parents[2]
# Links every first word, second word, ...; keeps a line about every call: lines of text, and whether it had priors.
STAND_IN = """#!{python}
import sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
text = [open(options[side], encoding="utf-8").read().splitlines() for side in ("-s", "-t")]
with open({log!r}, "a", encoding="utf-8") as log:
    print({name!r}, len(text[0]), "-p" in options, file=log)
if {name!r} == "eflomal-makepriors":
    open(options["-p"], "w").close()
else:
    for links in ("-f", "-r"):
        with open(options[links], "w", encoding="utf-8") as file:
            for pair in zip(*text, strict=True):
                file.write(" ".join(f"{{i}}-{{i}}" for i in range(min(len(side.split()) for side in pair))) + "\\n")
"""


@pytest.fixture(scope="module")
def robustness():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments"))
        yield importlib.import_module("robustness")


def generated(count: int, seed: int = 1) -> Gold:
    """Pairs with their links, every third of them only possible."""
    pairs, links = [], []
    for pair in generate_pairs(count, seed):
        pairs.append((" ".join(pair.source), " ".join(pair.target)))
        found = sorted(pair.links)
        links.append(GoldAlignment(frozenset(link for n, link in enumerate(found) if n % 3), frozenset(found)))
    return Gold(pairs, links)


def wrong(gold: Gold) -> list[frozenset]:
    """Links of which some are right."""
    return [
        frozenset((i, j if (i + number) % 3 else 0) for i, j in annotated.possible)
        for number, annotated in enumerate(gold.links)
    ]


# ---- measures ----


def test_joined_links_are_of_the_words_that_they_were_of(robustness):
    gold = generated(11)
    joined = robustness.join(gold, 4)
    assert len(joined.pairs) == len(joined.links) == 3
    for kind in ("sure", "possible"):
        before, after = (
            [
                (source.split()[i], target.split()[j])
                for (source, target), links in zip(some.pairs, some.links, strict=True)
                for i, j in sorted(getattr(links, kind))
            ]
            for some in (gold, joined)
        )
        assert sorted(before) == sorted(after)
        # Each pair's links come whole, and after those of the pair before.
        assert before == after
    assert [side.split() for side in joined.pairs[2]] == [
        [word for pair in gold.pairs[8:] for word in pair[side].split()] for side in (0, 1)
    ]


def test_joined_by_hand(robustness):
    pairs = [("a b", "A"), ("c", "C D E"), ("f", "F")]
    links = [{(1, 0)}, {(0, 0), (0, 2)}, {(0, 0)}]
    assert robustness.join_links(links, pairs, 1) == links
    assert robustness.join_links(links, pairs, 2) == [{(1, 0), (2, 1), (2, 3)}, {(0, 0)}]
    assert robustness.join_links(links, pairs, 3) == [{(1, 0), (2, 1), (2, 3), (3, 4)}]


def test_joining_what_was_found_in_single_pairs_changes_no_count(robustness):
    gold = generated(20)
    alone, together = (
        alignment_error_rate(robustness.join(gold, size).links, robustness.join_links(wrong(gold), gold.pairs, size))
        for size in (1, 6)
    )
    assert 0.1 < alone.aer == together.aer
    assert (alone.sure, alone.possible, alone.proposed) == (together.sure, together.possible, together.proposed)


def test_every_pair_is_in_the_bin_of_its_longer_side(robustness):
    lengths = [(1, 1), (9, 3), (3, 10), (19, 2), (20, 20), (1, 29), (30, 7), (59, 60), (61, 60), (5, 9)]
    pairs = [tuple(" ".join(["w"] * length) for length in pair) for pair in lengths]
    gold = Gold(pairs, [GoldAlignment(frozenset(), frozenset({(0, row)})) for row in range(len(pairs))])
    bins = robustness.by_length(gold, [frozenset({(row, 0)}) for row in range(len(pairs))])
    rows = {name: [row for links in found for row, _ in links] for name, (_, found) in bins.items()}
    assert rows == {"1-9": [0, 1, 9], "10-19": [2, 3], "20-29": [4, 5], "30-59": [6], "60+": [7, 8]}
    for name, (some, _) in bins.items():
        assert some.pairs == [pairs[row] for row in rows[name]]
        assert some.links == [gold.links[row] for row in rows[name]]
    assert robustness.by_length(Gold(pairs[2:4], gold.links[2:4]), [frozenset()] * 2).keys() == {"10-19"}


def slow_recalls(gold: Gold, found: list[frozenset], is_marked) -> list[tuple[int, int]]:
    """(links, hits) of the sure links of which a word is marked, and of the others."""
    counts = [[0, 0], [0, 0]]
    for (source, target), annotated, links in zip(gold.pairs, gold.links, found, strict=True):
        sides = [source.lower().split(), target.lower().split()]
        for i, j in annotated.sure:
            other = not (is_marked(0, sides[0], sides[0][i]) or is_marked(1, sides[1], sides[1][j]))
            counts[other][0] += 1
            counts[other][1] += (i, j) in links
    return [tuple(count) for count in counts]


@pytest.mark.parametrize("size", [1, 6])
def test_recall_of_repeated_words_is_that_of_a_slow_loop(size, robustness):
    gold = robustness.join(generated(40), size)
    found = wrong(gold)
    result = robustness.recalls(gold, found, robustness.repeated, ("repeated", "once"))
    expected = slow_recalls(gold, found, lambda _, words, word: sum(other == word for other in words) > 1)
    assert [(kind["sure"], kind["sure_hits"]) for kind in result.values()] == expected
    assert list(result) == ["repeated", "once"]
    for kind in result.values():
        assert 0 < kind["recall"] == kind["sure_hits"] / kind["sure"] < 1


def test_recall_of_unseen_words_is_that_of_a_slow_loop(robustness):
    gold, train = generated(40), generated(25, seed=2)
    found = wrong(gold)
    text = [(source.upper(), target) for source, target in train.pairs]  # cases are one
    args = SimpleNamespace(bootstrap=20, seed=0)
    found_by_size = {size: robustness.join_links(found, gold.pairs, size) for size in (1, 3)}
    result = robustness.measures(gold, found_by_size, robustness.vocabularies(text), args, "none")["unseen"]
    seen = [" ".join(side).lower().split() for side in zip(*train.pairs, strict=True)]
    expected = slow_recalls(gold, found, lambda side, _, word: word not in seen[side])
    assert [(kind["sure"], kind["sure_hits"]) for kind in result.values()] == expected
    assert list(result) == ["unseen", "seen"]
    assert min(links for links, _ in expected) > 0
    assert "unseen" not in robustness.measures(gold, found_by_size, None, args, "none")


# ---- whole runs ----


@pytest.fixture(scope="module")
def place(tmp_path_factory, robustness):
    """A corpus "a-b" (text, dev and test), one "b-c" of links only, a checkpoint, and a stand-in for eflomal."""
    folder = tmp_path_factory.mktemp("robustness")
    train = generated(30, seed=5)
    for name, some in (("train", train), ("dev", generated(12, seed=6)), ("test", generated(13, seed=7))):
        for side, language in enumerate("ab"):
            text = "".join(pair[side] + "\n" for pair in some.pairs)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
        lines = (
            " ".join(f"{i}{'-' if (i, j) in links.sure else 'p'}{j}" for i, j in sorted(links.possible))
            for links in some.links
        )
        (folder / f"{name}.align").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in ("eflomal-align", "eflomal-makepriors"):
        script = STAND_IN.format(python=sys.executable, log=str(folder / "calls"), name=name)
        (bin_folder / name).write_text(script, encoding="utf-8")
        (bin_folder / name).chmod(0o755)
    tokenizer = train_bpe_tokenizer([text for pair in train.pairs for text in pair], vocab_size=150)
    torch.manual_seed(5)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2, "ffn_dim": 16}
    special = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    rule = {"symmetrization": "union", "alignment_threshold": 0.15}
    model = MaskAlignModel(MaskAlignConfig(**sizes, **special, **rule))
    scatter(model, 0.3)
    model.save_pretrained(folder / "checkpoint")
    tokenizer.save_pretrained(folder / "checkpoint")
    with pytest.MonkeyPatch.context() as patch:
        corpora = {
            "a-b": robustness.Corpus(("a", "b"), ("train.{}",), {"dev": "dev", "test": "test"}),
            "b-c": robustness.Corpus(("a", "b"), (), {"test": "test"}),
        }
        patch.setattr(robustness, "CORPORA", corpora)
        yield folder


def run(robustness, place: Path, output: Path, *options, pair: str = "a-b") -> tuple[dict, list[str]]:
    """What a run wrote, and its calls of eflomal."""
    calls = place / "calls"
    calls.unlink(missing_ok=True)
    common = ["--data", place, "--pair", pair, "--bootstrap", 20, "--joined", 1, 2, 5, "--output", output]
    robustness.main([str(option) for option in (*common, *options)])
    called = calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
    return json.loads(output.read_text(encoding="utf-8")), called


@pytest.fixture(scope="module")
def peer(robustness, place):
    """The results of the stand-in, and its calls."""
    return run(robustness, place, place / "peer.json", "--eflomal", place / "bin" / "eflomal-align")


def test_eflomal_learns_with_or_without_the_text_that_it_aligns(peer):
    result, calls = peer
    together = ["eflomal-align 55 False", "eflomal-align 36 False"]  # 30 + 12 + 13; 30 + 3 + 3
    learned = ["eflomal-align 30 False", "eflomal-makepriors 30 True"]
    assert calls == together + learned + [f"eflomal-align {lines} True" for lines in (12, 13, 6, 7, 3, 3)]
    systems = result["systems"]
    assert list(systems) == ["eflomal", "eflomal_withheld"]
    assert systems["eflomal"]["learned_from"] == ["train", "dev", "test"]
    assert systems["eflomal_withheld"]["learned_from"] == ["train"]
    assert list(systems["eflomal"]["splits"]["test"]["joined"]) == ["1", "5"]
    assert list(systems["eflomal_withheld"]["splits"]["test"]["joined"]) == ["1", "2", "5"]


def test_eflomal_is_merged_as_dev_chose_and_scored_on_its_own_lines(peer, robustness, place):
    result, _ = peer
    row = result["systems"]["eflomal_withheld"]
    assert row["chosen_on"] == "dev"
    assert row["dev_aer"][row["symmetrization"]] == min(row["dev_aer"].values())
    for split, count, seed in (("dev", 12, 6), ("test", 13, 7)):
        for size in (1, 2, 5):
            gold = robustness.join(generated(count, seed), size)
            lengths = [min(len(side.split()) for side in pair) for pair in gold.pairs]
            diagonal = [frozenset((i, i) for i in range(length)) for length in lengths]
            scored = row["splits"][split]["joined"][str(size)]
            assert scored["aer"] == alignment_error_rate(gold.links, diagonal, check_indices=False).aer
            assert scored["sentences"] == len(gold.pairs)
    change = row["splits"]["test"]["joined_difference"]
    joined = row["splits"]["test"]["joined"]
    assert change["pairs"] == [1, 5]
    assert change["difference"] == pytest.approx(joined["5"]["aer"] - joined["1"]["aer"], abs=1e-12)
    assert change["difference"] > 0.05  # the sides are not of one length
    assert change["interval"] is None  # of three lines
    low, high = joined["1"]["interval"]
    assert low <= joined["1"]["aer"] <= high


@pytest.mark.slow
def test_a_checkpoint_beside_eflomal(peer, robustness, place, tmp_path):
    options = ("--model", f"tiny={place / 'checkpoint'}", "--against", place / "peer.json")
    result, calls = run(robustness, place, tmp_path / "out.json", *options)
    assert not calls
    assert result["config"]["against"] == "peer.json"
    assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert len(result["data_sha256"]) == 2 + 3 + 3
    (row,) = result["systems"].values()
    assert (row["symmetrization"], row["threshold"]) == ("union", 0.15)
    rules = row["rules"]
    assert (rules["default"]["symmetrization"], rules["default"]["threshold"]) == ("harmonic", 0.5)
    for split in ("dev", "test"):
        measured = row["splits"][split]
        assert list(measured["joined"]) == ["1", "2", "5"]
        assert measured["joined"]["1"]["aer"] == rules["saved"]["aer"][split]
        worth = rules["default"]["aer"][split] - rules["dev_chosen"]["aer"][split]
        assert rules["no_gold_minus_dev_chosen"][split] == worth
        for other, sizes in (("eflomal", ["1", "5"]), ("eflomal_withheld", ["1", "5"])):
            compared = measured["against"][other]
            assert sorted(compared) == sizes
            theirs = peer[0]["systems"][other]["splits"][split]["joined"]
            for size in sizes:
                expected = measured["joined"][size]["aer"] - theirs[size]["aer"]
                assert compared[size]["difference"] == pytest.approx(expected, abs=1e-12)
    assert rules["dev_chosen"]["aer"]["dev"] <= min(rules["saved"]["aer"]["dev"], rules["default"]["aer"]["dev"])


def test_results_of_other_links_are_refused(peer, robustness, place, tmp_path, capsys):
    result = json.loads((place / "peer.json").read_text(encoding="utf-8"))
    result["data_sha256"]["test.align"] = "0" * 64
    other = tmp_path / "other.json"
    other.write_text(json.dumps(result), encoding="utf-8")
    options = ["--data", place, "--pair", "a-b", "--model", f"tiny={place / 'checkpoint'}", "--against", other]
    with pytest.raises(SystemExit):
        robustness.main([str(option) for option in (*options, "--output", tmp_path / "out.json")])
    assert f"--against {other} was not made with this test.align" in capsys.readouterr().err
