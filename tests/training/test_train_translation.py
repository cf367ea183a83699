"""The training script from text files to a saved, scored model; translation and checkpoint averaging."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
import yaml
from helpers import TINY, assert_layouts_know, begun, files_that_name
from runs import ROOT, SENTENCES, german
from runs import translation_settings as settings
from sacrebleu import corpus_bleu
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_attncal.data.tokenizer import NULL, train_bpe_tokenizer
from hf_attncal.hub import translate_in_fresh_process
from hf_attncal.inference.translation import translate_texts
from hf_attncal.io.files import sha256
from hf_attncal.training.checkpoints import average_checkpoints, last_checkpoints
from hf_attncal.training.seq2seq import build_seq2seq_model
from hf_attncal.training.translation import TranslationConfig

NO_SCORES = ["data.dev=null", "data.test=null", "data.held_out_pairs=0", "training.eval_strategy=no"]
sys.path.insert(0, str(ROOT / "training"))
import train as script  # noqa: E402


@pytest.mark.parametrize(
    "model",
    [
        pytest.param({"calibration": "annealed"}, marks=pytest.mark.slow),
        pytest.param({"calibration": "gated", "uam": True}, marks=pytest.mark.slow),
        pytest.param({"backbone": "luong", "calibration": "annealed"}, marks=pytest.mark.slow),
        {"guided": True},
    ],
    ids=["marian", "uam", "luong", "guided"],
)
def test_plain_generation_is_what_was_scored(model, corpus, tmp_path, quick_fresh_process):
    """Of the saved folder and of a checkpoint, with and without the package; what a caller says wins."""
    arguments = ["--config", str(settings(tmp_path, **model)), "--data", str(corpus), "evaluation.max_new_tokens=23"]
    script.main([*arguments, "evaluation.length_penalty=0.2", "evaluation.batch_size=99"])
    run = tmp_path / "run"
    scored = (run / "test.hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    assert [text.strip() for text in translate_in_fresh_process(run, lines)] == scored
    tokenizer, saved = AutoTokenizer.from_pretrained(run), AutoModelForSeq2SeqLM.from_pretrained(run)
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    plain = saved.generate(**batch)
    assert [text.strip() for text in tokenizer.batch_decode(plain, skip_special_tokens=True)] == scored
    assert plain.shape[1] == 24  # not transformers' own 21: these models never end a sentence
    for options, length in (({"max_new_tokens": 3}, 4), ({"max_length": 6}, 6), ({"max_new_tokens": 27}, 28)):
        assert saved.generate(**batch, **options).shape[1] == length
    greedy = saved.generate(**batch, num_beams=1, length_penalty=None)
    explicit = saved.generate(**batch, num_beams=1, length_penalty=None, do_sample=False, max_length=24)
    assert torch.equal(greedy, explicit)
    last = AutoModelForSeq2SeqLM.from_pretrained(run / "checkpoint-4").generation_config
    assert last.to_diff_dict() == saved.generation_config.to_diff_dict()


def test_a_training_on_twenty_lines_does_not_judge_its_attention(tmp_path):
    text = tmp_path / "data"
    text.mkdir()
    for side, lines in (("en", SENTENCES), ("de", map(german, SENTENCES))):
        (text / f"train.{side}").write_text("".join(f"{line}\n" for line in [*lines, *["."] * 2]), encoding="utf-8")
    splits = ["data.dev=null", "data.test=null", "data.held_out_pairs=500"]
    script.main(["--config", str(settings(tmp_path)), "--data", str(text), *splits])
    results = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert results["verdict"]["text"] == "Attention not evaluated: needs at least 6 sentence pairs, got 2."


@pytest.mark.parametrize("beams", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_without_a_maximum_length_all_positions_may_be_generated(beams, corpus, tmp_path):
    arguments = ["--config", str(settings(tmp_path)), "--data", str(corpus), "data.test=null"]
    script.main([*arguments, f"evaluation.num_beams={beams}", "evaluation.length_penalty=0.5"])
    tokenizer, saved = (kind.from_pretrained(tmp_path / "run") for kind in (AutoTokenizer, AutoModelForSeq2SeqLM))
    assert (saved.generation_config.num_beams, saved.generation_config.max_length) == (beams, 32)
    assert saved.generate(**tokenizer("a dog .", return_tensors="pt")).shape[1] == 32


@pytest.mark.processor
@pytest.mark.parametrize(
    "model",
    [
        pytest.param({"calibration": "annealed"}, marks=pytest.mark.slow),
        pytest.param({"backbone": "bart", "leaky": True}, marks=pytest.mark.slow),
        pytest.param({"calibration": "gated", "uam": True}, marks=pytest.mark.slow),
        {"backbone": "luong", "calibration": "annealed"},
    ],
    ids=["marian", "bart", "uam", "luong"],
)
def test_text_to_scored_model(model, corpus, tmp_path):
    """All that the script leaves behind; then a resume that goes on from the last checkpoint."""
    arguments = ["--config", str(settings(tmp_path, **model)), "--data", str(corpus)]
    results = script.main([*arguments, "--results", str(tmp_path / "results" / "x.json")])
    run = tmp_path / "run"
    stored = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert stored == json.loads((tmp_path / "results" / "x.json").read_text(encoding="utf-8"))
    assert stored["steps"] == 4
    assert stored["averaged_checkpoints"] == ["checkpoint-2", "checkpoint-3", "checkpoint-4"]
    assert stored["data_sha256"]["test.de"] == sha256(corpus / "test.de")
    assert stored["sentence_pairs"]["train"]["kept"] == len(SENTENCES) * 3
    assert "tok:none" in stored["test"]["signature"]
    assert 0 <= stored["dev"]["bleu"] <= 100
    assert [e["step"] for e in stored["log_history"] if "eval_bleu" in e] == [2, 4]
    assert sum("nmt_loss" in e for e in stored["log_history"]) == 4
    assert str(tmp_path) not in (run / "results.json").read_text(encoding="utf-8")
    assert_layouts_know(run)
    assert ("attention" in stored) == ("calibration" in model)

    tokenizer = AutoTokenizer.from_pretrained(run)
    saved = AutoModelForSeq2SeqLM.from_pretrained(run)
    assert saved.generation_config.use_cache
    assert saved.generation_config.num_beams == 2
    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    again = translate_texts(saved, tokenizer, lines, num_beams=2)
    assert again == (run / "test.hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert corpus_bleu(again, [list(map(german, lines))], tokenize="none", force=True).score == results["test"]["bleu"]
    if model.get("calibration") == "annealed":
        assert saved.annealing_step == 4
    if "uam" in model:
        assert saved.config.null_token_id == tokenizer.convert_tokens_to_ids(NULL) == len(tokenizer) - 1
        assert all(0 < entry["uam_loss"] < entry["loss"] for entry in stored["log_history"] if "nmt_loss" in entry)
        assert sum("uam_loss" in entry for entry in stored["log_history"]) == 4

    with pytest.raises(ValueError, match="holds another run"):
        script.main(arguments)


LONG = " ".join(["dog"] * 40)  # the tiny models have 32 positions


def write_long(corpus: Path, name: str, row: int) -> None:
    """Make a line of a split too long for the model."""
    for language, text in (("en", LONG), ("de", german(LONG))):
        file = corpus / f"{name}.{language}"
        lines = file.read_text(encoding="utf-8").splitlines()
        lines[row] = text
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", ["dev", "test"])
def test_a_source_that_is_too_long_is_found_before_the_training_by_its_line(name, corpus, tmp_path):
    write_long(corpus, name, 3)
    arguments = ["--config", str(settings(tmp_path)), "--data", str(corpus)]
    message = (
        rf"^line 4 of .*{name}\.en \(`data.{name}`\) has \d+ tokens, the model takes at most 32\. Split the line, or"
    )
    with pytest.raises(ValueError, match=message):
        script.main(arguments)
    assert not begun(tmp_path / "run")


def test_held_out_text_loses_what_training_loses_and_names_its_lines(corpus, tmp_path):
    """Of five held-out rows the second is line 7 of the second file."""
    write_long(corpus, "train", 16)
    for language in ("en", "de"):
        lines = (corpus / f"train.{language}").read_text(encoding="utf-8").splitlines(keepends=True)
        (corpus / f"first.{language}").write_text("".join(lines[:10]), encoding="utf-8")
        (corpus / f"second.{language}").write_text("".join(lines[10:]), encoding="utf-8")
    files = [f"data.train.{side}=[first.{end},second.{end}]" for side, end in (("source", "en"), ("target", "de"))]
    arguments = ["--config", str(settings(tmp_path)), "--data", str(corpus), "data.dev=null", "data.test=null"]
    told = r"1 of 5 pairs were left out of the held-out text.* more than 32 tokens.*\(line 7 of .*second\.en\)"
    with pytest.warns(UserWarning, match=told):
        script.main([*arguments, *files, "data.held_out_pairs=5"])
    assert len((tmp_path / "run" / "dev.hypotheses.txt").read_text(encoding="utf-8").splitlines()) == 4


def test_results_have_no_paths_of_this_machine(corpus, tmp_path):
    """Files and models may be given by their whole paths, as the shell completes them."""
    first = script.main(["--config", str(settings(tmp_path)), "--data", str(corpus), *NO_SCORES])
    (corpus / "more").mkdir()
    (corpus / "train.en").rename(corpus / "more" / "train.en")
    again = [f"data.train.source={corpus / 'more' / 'train.en'}", f"data.train.target={corpus / 'train.de'}"]
    again += [f"model.init_from={tmp_path / 'run'}", f"training.output_dir={tmp_path / 'again'}", "model.dropout=0.2"]
    path = tmp_path / "next.yaml"
    path.write_text(
        yaml.safe_dump({"job": "translation", "training": {"max_steps": 1, "warmup_steps": 0}}), encoding="utf-8"
    )
    results = script.main(["--config", str(path), *again, *NO_SCORES])
    assert results["config"]["data"]["train"] == {"source": "more/train.en", "target": "train.de"}
    assert results["config"]["model"]["init_from"] == "run"
    assert results["data_sha256"] == {
        "more/train.en": first["data_sha256"]["train.en"],
        "train.de": first["data_sha256"]["train.de"],
    }
    for run in ("run", "again"):
        assert files_that_name(tmp_path, tmp_path / run) == set()
    with pytest.raises(ValueError, match=r"`data.train.target`.*sha256"):
        script.main(["--config", str(path), *again, *NO_SCORES, "--resume", f"data.train.target={corpus / 'dev.de'}"])


def test_script_learns(corpus, tmp_path):
    """A gated model learns the word-by-word language, measured by BLEU on dev."""
    overrides = ["training.max_steps=60", "training.eval_steps=60", "training.save_strategy=no", "model.dropout=0"]
    overrides += ["training.logging_steps=20", "training.bf16=false", "average_last=1", "model.init_std=0.2"]
    config = settings(tmp_path, calibration="gated", scale_embedding=True)
    results = script.main(["--config", str(config), "--data", str(corpus), *overrides])
    assert results["averaged_checkpoints"] == []
    assert results["test"]["bleu"] > 60


def test_first_pairs_of_the_text(corpus, tmp_path):
    """Of the training text only the first pairs are there, for the vocabulary, too; of dev and test all."""
    arguments = ["--config", str(settings(tmp_path)), "--data", str(corpus), "training.max_steps=1"]
    results = script.main([*arguments, "data.train_pairs=20"])
    whole = len((corpus / "dev.en").read_text(encoding="utf-8").splitlines())
    assert {name: report["kept"] for name, report in results["sentence_pairs"].items()} == {"train": 20, "dev": whole}
    with pytest.raises(ValueError, match=r"`data.train_pairs`.*54.*got 100"):
        script.main([*arguments, "data.train_pairs=100", f"training.output_dir={tmp_path / 'other'}"])


def test_bad_input(corpus, tmp_path):
    arguments = ["--config", str(settings(tmp_path)), "--data", str(corpus)]
    with pytest.raises(ValueError, match=r"`data.train`.*text"):
        script.main([*arguments, "data.train=null"])
    with pytest.raises(ValueError, match=r"unknown key `model.leeky`"):
        script.main([*arguments, "model.leeky=true"])
    (corpus / "train.de").write_text("ein\n", encoding="utf-8")
    with pytest.raises(ValueError, match="same number of lines"):
        script.main(arguments)


def test_help(capsys):
    with pytest.raises(SystemExit) as stop:
        script.main(["--help"])
    assert stop.value.code == 0
    assert "--config configs/translation/multi30k_gated.yaml" in capsys.readouterr().out


# ---- building the model ----


def tokenizer_of(sentences: list[str]):
    return train_bpe_tokenizer(sentences, 60)


def test_build_model_starts_from_a_checkpoint(tmp_path):
    tokenizer = tokenizer_of(SENTENCES)
    tiny = {name: value for name, value in TINY.items() if not name.endswith("_id")} | {"vocab_size": len(tokenizer)}
    model = build_seq2seq_model(TranslationConfig.make({"model": tiny}), tokenizer)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.decoder_start_token_id == tokenizer.pad_token_id
    model.save_pretrained(tmp_path)
    values = {"model": {"init_from": str(tmp_path), "calibration": "gated", "dropout": 0.25}}
    loaded = build_seq2seq_model(TranslationConfig.make(values), tokenizer)
    assert (loaded.config.calibration, loaded.config.dropout) == ("gated", 0.25)
    assert torch.equal(loaded.model.shared.weight, model.model.shared.weight)
    values["model"]["backbone"] = "bart"
    with pytest.raises(ValueError, match=r"`model_type`.*'attncal_bart'.*'bart'"):
        build_seq2seq_model(TranslationConfig.make(values), tokenizer)


@pytest.mark.parametrize("switches", [{}, {"uam": True}])
def test_a_start_that_asks_for_a_kernel_of_the_hub_is_refused(switches, tmp_path):
    tokenizer = tokenizer_of(SENTENCES)
    tiny = {name: value for name, value in TINY.items() if not name.endswith("_id")} | {"vocab_size": len(tokenizer)}
    build_seq2seq_model(TranslationConfig.make({"model": tiny}), tokenizer).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(saved | {"attn_implementation": "someone/kernel"}))
    with pytest.raises(ValueError, match=r"`attn_implementation`.*got 'someone/kern"):
        TranslationConfig.make({"model": {"init_from": str(tmp_path), **switches}})


def test_build_model_needs_padding():
    tokenizer = tokenizer_of(SENTENCES)
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="padding and an end-of-sentence"):
        build_seq2seq_model(TranslationConfig.make({}), tokenizer)


# ---- translation ----


# ---- averaging ----


def checkpoint(folder: Path, number: int, **tensors: torch.Tensor) -> Path:
    path = folder / f"checkpoint-{number}"
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    (path / "clock.json").write_text("{}")
    return path


def test_average_of_checkpoints(tmp_path):
    values = {step: torch.randn(3, 2) for step in (5, 10, 100)}
    for step, value in values.items():
        checkpoint(tmp_path, step, weight=value, half=value.bfloat16(), step=torch.tensor(step))
    (tmp_path / "checkpoint-200").mkdir()  # of a process that was killed
    paths = last_checkpoints(tmp_path, 2)
    assert [path.name for path in paths] == ["checkpoint-10", "checkpoint-100"]
    averaged = average_checkpoints(last_checkpoints(tmp_path, 9))
    assert torch.allclose(averaged["weight"], torch.stack(list(values.values())).mean(0))
    assert averaged["half"].dtype == torch.bfloat16
    # summed in float32 and rounded once
    exact = torch.stack([value.bfloat16().float() for value in values.values()]).mean(0)
    assert torch.equal(averaged["half"], exact.bfloat16())
    assert averaged["step"] == 100
    assert torch.equal(average_checkpoints(paths[-1:])["weight"], values[100])


def test_averages_that_make_no_sense(tmp_path):
    paths = [checkpoint(tmp_path, 1, weight=torch.ones(2)), checkpoint(tmp_path, 2, weight=torch.ones(3))]
    with pytest.raises(ValueError, match=r"`paths`.*one run"):
        average_checkpoints(paths)
    with pytest.raises(ValueError, match="checkpoint, got none"):
        average_checkpoints([])


@pytest.mark.parametrize("name", ["translation", "adapter", "aligner"])
def test_an_error_of_a_script_is_one_line_and_has_a_traceback_only_on_request(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "config.yaml").write_text(f"job: {name}\nnothing: 1\n")
    command = [str(ROOT / "training" / "train.py"), "--config", str(tmp_path / "config.yaml")]
    for debug in ([], ["--debug"]):
        monkeypatch.setattr(sys, "argv", [*command, *debug])
        with pytest.raises(SystemExit, match=r"^1$"):
            runpy.run_path(command[0], run_name="__main__")
        error = capsys.readouterr().err
        assert "`nothing`" in error
        assert ("Traceback" in error) == bool(debug)
        assert debug or re.fullmatch(r"train\.py: error: .*\n", error)
