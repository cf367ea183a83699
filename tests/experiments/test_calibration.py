"""The calibration experiment on a tiny text: one process trains all variants, and finished trainings are collected."""

import json

import pytest


@pytest.fixture
def corpus(experiment, tmp_path, monkeypatch):
    """A corpus of 24 pairs in place of the others, and an empty folder in the place of results/."""
    calibration = experiment("calibration")
    words = ["red", "green", "blue", "dog", "cat", "runs", "sees", "finds", "the", "a"]
    lines = [" ".join(words[(n * k) % 10] for k in range(2, 6)) for n in range(24)]
    for split in ("train", "dev", "test"):
        for side, texts in (("en", lines), ("de", [line.upper() for line in lines])):
            (tmp_path / f"{split}.{side}").write_text("\n".join(texts if split == "train" else texts[:6]) + "\n")
    names = {split: (f"{split}.en", f"{split}.de") for split in ("train", "dev", "test")}
    monkeypatch.setitem(calibration.CORPORA, "tiny", names)
    monkeypatch.setattr(calibration.committed, "RESULTS", tmp_path / "results")
    return tmp_path


SIZES = {"epochs": 2, "vocabulary": 60, "longest": 32, "tokens": 120, "beams": 1, "width": 8, "layers": 1, "heads": 2}


def test_variants_are_trained_at_once_and_compared_with_the_baseline(experiment, corpus):
    calibration = experiment("calibration")
    variants = ["calibration=gated,mask_penalty=0.01", "baseline", "calibration=fixed,mask_inputs=trained"]
    options = [f"--{name}={value}" for name, value in (SIZES | {"warmup": 2}).items()]
    options += [f"--variant={variant}" for variant in variants]
    calibration.main(["train", "tiny", "--data", str(corpus), *options])
    names = ["baseline", "fixed_trained_alpha_0.1", "gated_alpha_0.01"]
    files = {path.stem: json.loads(path.read_text()) for path in corpus.glob("results/calibration/tiny/*.json")}
    assert sorted(files) == [f"{name}_seed1" for name in names]
    for stem, found in files.items():
        assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2]
        assert found["epochs"][1]["training"]["nmt_loss"] < found["epochs"][0]["training"]["nmt_loss"]
        assert 0 <= found["ece"] <= 1
        assert found["test"]["chrf"] >= 0
        is_baseline = stem == "baseline_seed1"
        assert ("minus_baseline" in found["test"]) != is_baseline
        assert ("attention" in found) != is_baseline
    gated = files["gated_alpha_0.01_seed1"]["attention"]
    assert gated["mass"][0] > 1
    assert gated["divergence"][0] > gated["divergence_normalized"][0] > 0
    assert len(gated["by_head"]["mass"][0]) == 2
    # The same start, batches and draws: before the masks do anything the losses are close, and never the same.
    first = [files[f"{name}_seed1"]["epochs"][0]["training"]["nmt_loss"] for name in names]
    assert len(set(first)) == 3
    assert max(first) - min(first) < 0.2


def test_finished_trainings_are_collected_and_others_named(experiment, corpus, capsys):
    from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
    from hf_attncal.data.tokenizer import train_bpe_tokenizer

    calibration = experiment("calibration")
    lines = (corpus / "dev.de").read_text().splitlines()
    tokenizer = train_bpe_tokenizer([*lines, *(corpus / "dev.en").read_text().splitlines()], 60)
    options = calibration.argparse.Namespace(width=8, layers=1, heads=2, longest=32, dropout=0.1)
    sizes = calibration.sizes(options, tokenizer)
    for name, fields in (("baseline", {}), ("gated", {"calibration": "gated", "mask_penalty": 0.003})):
        folder = corpus / name
        AttnCalMarianMTModel(AttnCalMarianConfig(**sizes, **fields)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        run = {"data": {}, "training": {"seed": 3}, "model": fields, "evaluation": {"bleu_tokenize": "none"}}
        (folder / "results.json").write_text(json.dumps({"config": run}))
        for split in ("dev", "test"):  # the baseline makes a fault in each line
            said = lines if name == "gated" else [line[:-1] for line in lines]
            (folder / f"{split}.hypotheses.txt").write_text("\n".join(said) + "\n")
    folders = [str(corpus / name) for name in ("gated", "unfinished", "baseline")]
    calibration.main(["collect", "tiny", "--data", str(corpus), *folders])
    found = json.loads((corpus / "results/calibration/tiny/gated_alpha_0.003_seed3.json").read_text())
    assert found["test"]["bleu"] == pytest.approx(100)
    assert found["test"]["minus_baseline"] > 10
    assert found["test"]["p_value"] < 0.05
    assert found["attention"]["layers"] == [0]
    assert "unfinished is not finished" in capsys.readouterr().out
