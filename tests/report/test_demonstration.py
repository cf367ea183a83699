"""The demo: its pieces on made-up numbers, and the whole of it with a few steps."""

import json

import pytest
import torch

pytest.importorskip("rich")

import hf_attncal
from hf_attncal.commands import main
from hf_attncal.data.synthetic.english_german import AlignedPair, generate_pairs
from hf_attncal.inference.word_attention import WordDetails
from hf_attncal.report import demonstration as demo


def details(attention: torch.Tensor, contribution: torch.Tensor) -> WordDetails:
    steps = torch.ones(len(attention), attention.shape[1]).bool()
    return WordDetails(attention, attention, contribution, attention, steps)


def test_each_weight_is_scored_in_the_layer_that_is_best_for_it_on_dev():
    """Attention finds the links in layer 1, contribution in layer 0, counted as everywhere."""
    pair = AlignedPair(("a", "b"), ("x", "y"), frozenset({(0, 1), (1, 0)}))
    gold = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    found = details(torch.stack([1 - gold, gold]), torch.stack([gold, 1 - gold]))
    scores = demo.compare_alignments(([pair], [found]), ([pair], [found]))
    assert {name: score["layer"] for name, score in scores.items()} == {"attention": 1, "contribution": 0}
    assert [scores[name]["all"]["aer"] for name in scores] == [0, 0]
    worse = details(torch.stack([gold, 1 - gold]), torch.stack([1 - gold, gold]))
    scores = demo.compare_alignments(([pair], [found]), ([pair], [worse]))
    assert [scores[name]["all"]["aer"] for name in scores] == [1, 1]


def test_punctuation_can_be_left_out():
    pair = AlignedPair(("a", "."), ("x", "."), frozenset({(0, 0), (1, 1)}))
    wrong_full_stop = torch.tensor([[[0.9, 0.1], [0.9, 0.1]]])
    data = [pair], [details(wrong_full_stop, wrong_full_stop)]
    score = demo.compare_alignments(data, data)["attention"]
    assert score["all"]["aer"] == 0.5
    assert score["without_punctuation"]["aer"] == 0
    assert "|punct:excluded|" in score["without_punctuation"]["signature"]


def test_the_heat_map_shows_a_pair_that_fits(tmp_path):
    pairs = generate_pairs(12, seed=3)
    found = [details(*torch.rand(2, 2, len(pair.target), len(pair.source))) for pair in pairs]
    path = tmp_path / "map.png"
    drawn = demo.draw_heat_map(path, [""] * 12, (pairs, found), layer=1)
    assert path.read_bytes().startswith(b"\x89PNG")
    source, target = drawn.split("  |  ")
    assert max(len(source.split()), len(target.split())) <= demo.MAX_WORDS_OF_MAP


def test_the_heat_map_is_of_the_pair_that_calibration_changes_most_among_those_translated_right(tmp_path):
    pairs = [AlignedPair((word, "."), (word.upper(), "."), frozenset({(0, 0)})) for word in "abc"]
    attention = torch.tensor([[[0.9, 0.1], [0.8, 0.2]]])
    found = [
        details(attention, attention)._replace(calibrated=attention + moved * torch.tensor([-1.0, 1.0]))
        for moved in (0.02, 0.1, 0.3)
    ]
    path = tmp_path / "map.png"
    for translations, chosen in ((["A .", "B .", "wrong"], "b"), (["A .", "B .", "C ."], "c"), (["", "", ""], "c")):
        drawn = demo.draw_heat_map(path, translations, (pairs, found), layer=0)
        assert drawn == f"{chosen} .  |  {chosen.upper()} ."


@pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_whole_demo(tmp_path, monkeypatch, capsys, twice):
    monkeypatch.setattr(demo, "PAIRS", {"train": 60, "valid": 12, "test": 12})
    settings = demo.DEMO_SETTINGS.replace("tokens_per_batch: 1024", "tokens_per_batch: 300")
    settings = settings.replace("vocab_size: 800", "vocab_size: 300").replace(
        "max_new_tokens: 48", "max_new_tokens: 6"
    )
    monkeypatch.setattr(demo, "DEMO_SETTINGS", settings)
    whole, returned = demo.run_demo, []
    if twice:
        returned.append(hf_attncal.demo(output=tmp_path, steps=3))
        capsys.readouterr()
    monkeypatch.setattr(
        demo, "run_demo", lambda output, steps: returned.append(whole(output, steps=3)) or returned[-1]
    )
    assert main(["demo", "--output", str(tmp_path)]) == 0  # over what the first one left
    out = capsys.readouterr().out
    assert f" seconds. All files are in {tmp_path}/.\n" in out
    assert out.endswith(f"attncal show {tmp_path}/model 'the old house'\n")
    results, told = returned[0], json.loads((tmp_path / "results.json").read_text())
    assert {name: told[name] for name in ("bleu", "alignment")} == {
        name: results[name] for name in ("bleu", "alignment")
    }
    assert "BLEU before training" in out
    assert "step 3 of 3  loss " in out
    assert "alignment error rate" in out
    assert "attention a" in out
    assert "contribution phi" in out
    assert results.keys() == told.keys()
    assert results["config"]["seed"] == 1
    assert len(results["reliability"]) == 2
    assert len(results["translations"]) == demo.TRANSLATED
    assert "AttnCalMarianMTModel, " in out
    assert "files of code. Problems: none." in out
    assert (tmp_path / "heat_map.png").exists()
    assert "license: apache-2.0" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert demo.inspect_folder(tmp_path / "model").problems == ()
