"""What calibration buys: probabilities of tokens against a slow loop, and input that is made difficult."""

import json
import random
from pathlib import Path

import pytest
import torch
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, text_model


@pytest.fixture
def buys(experiment):
    return experiment("buys")


def test_probabilities_of_tokens(buys):
    """Against one step after the other, with a softmax that is written out."""
    model, tokenizer = text_model("marian", "ours"), bpe_tokenizer()
    pairs = [("the old house", "das alte Haus"), ("a dog", "ein Hund schläft"), ("the house", "das Haus")]
    expected = []
    for source, target in pairs:
        ids = torch.tensor([tokenizer(source).input_ids])
        labels = tokenizer(text_target=target).input_ids
        read, said, right, losses = [model.config.decoder_start_token_id], [], [], []
        for label in labels:
            with torch.no_grad():
                logits = model.eval()(input_ids=ids, decoder_input_ids=torch.tensor([read])).logits[0, -1]
            powers = [logit.exp().item() for logit in logits]
            best = max(range(len(powers)), key=powers.__getitem__)
            said.append(powers[best] / sum(powers))
            right.append(best == label)
            losses.append(-torch.tensor(powers[label] / sum(powers)).log().item())
            read.append(label)
        expected.append((said, right, losses))
    found = sorted(buys.said_of_tokens(model, tokenizer, pairs), key=lambda of: (len(of[0]), of[0]))
    expected.sort(key=lambda of: (len(of[0]), of[0]))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
        assert ours[1] == theirs[1]
        assert ours[2] == pytest.approx(theirs[2], rel=1e-5)
    measured = buys.probabilities(model, tokenizer, pairs, 10)
    assert measured["count"] == sum(len(said) for said, *_ in expected)
    assert measured["right"] == pytest.approx(sum(sum(right) for _, right, _ in expected) / measured["count"])
    assert measured["loss"] == pytest.approx(sum(sum(losses) for *_, losses in expected) / measured["count"], rel=1e-5)


def test_typing_errors(buys):
    line = "the small house near 1000 rivers is very old ," + " window" * 400
    words, found = line.split(), buys.mistyped(line, random.Random(1)).split()
    changed = [(before, after) for before, after in zip(words, found, strict=True) if before != after]
    assert all(len(word) >= 4 and word.isalpha() for word, _ in changed)
    assert {sorted(after) == sorted(before) for before, after in changed} == {True, False}
    assert {len(after) - len(before) for before, after in changed} == {-1, 0, 1}
    assert 0.08 < len(changed) / 404 < 0.2


def test_lost_words(buys):
    line = " ".join(map(str, range(1000)))
    left = buys.with_lost_words(line, random.Random(1)).split()
    assert 850 < len(left) < 950
    assert left == sorted(left, key=int)
    assert {buys.with_lost_words("alone", random.Random(n)) for n in range(50)} == {"alone"}


def test_every_four_lines_are_joined(buys):
    pairs = [(f"s{n}", f"t{n}") for n in range(10)]
    assert buys.joined(pairs) == [("s0 s1 s2 s3", "t0 t1 t2 t3"), ("s4 s5 s6 s7", "t4 t5 t6 t7")]


@pytest.fixture
def desk(tmp_path) -> Path:
    for name, kind in (("baseline", "stock"), ("gated", "ours")):
        text_model("marian", kind).save_pretrained(tmp_path / name)
        bpe_tokenizer().save_pretrained(tmp_path / name)
        (tmp_path / name / "results.json").write_text(json.dumps({"config": {"training": {"seed": 2}}}))
    for name, lines in (
        *((f"wpt03-enfr/mt-test.{side}", text) for side, text in (("en", SOURCES), ("fr", TARGETS))),
        *((f"multi30k/test_2016_flickr.{side}", text) for side, text in (("en", SOURCES), ("fr", TARGETS))),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "buys").mkdir()
    return tmp_path


@pytest.mark.slow
def test_what_is_written(buys, desk, monkeypatch, capsys):
    monkeypatch.setattr(buys, "RESULTS", desk)
    files = {name: tuple(side.removesuffix(".gz") for side in sides) for name, sides in buys.FILES.items()}
    monkeypatch.setattr(buys, "FILES", files)
    monkeypatch.setattr(buys, "JOINED", 1)  # the model has few positions
    models = [f"--model={name}={desk / name}" for name in ("gated", "baseline")]
    command = [f"--data={desk}", f"--translations={desk / 'kept'}", "--pairs=4", "--lines=4"]
    buys.main([*command, *models])
    found = {name: json.loads((desk / "buys" / f"{name}_seed2.json").read_text()) for name in ("baseline", "gated")}
    texts = ["clean", "typing", "lost", "long", "captions"]
    assert [list(result["translations"]) for result in found.values()] == [texts, texts]
    for name in texts:
        ours, theirs = (found[model]["translations"][name] for model in ("gated", "baseline"))
        assert ours["minus_baseline"] == pytest.approx(ours["score"] - theirs["score"])
        assert ours["lines"] == theirs["lines"]
    assert found["gated"]["probabilities"]["signature"].startswith("ece|")
    # A translation that is there is not made again.
    (desk / "kept" / "gated_seed2.clean.txt").write_text("".join(f"{line}\n" for line in TARGETS[:4]))
    buys.main([*command, *models])
    again = json.loads((desk / "buys" / "gated_seed2.json").read_text())
    assert again["translations"]["clean"]["score"] == pytest.approx(100)
    (desk / "kept" / "gated_seed2.clean.txt").write_text("too short\n")
    with pytest.raises(ValueError, match="has 1 lines for 4 sources"):
        buys.main([*command, *models])
    with pytest.raises(SystemExit):
        buys.main([*command, models[0]])
    assert "gated_seed2 has no baseline of its seed" in capsys.readouterr().err
