"""`attncal train`, `attncal adapt` and `attncal align train` as a stranger with two files of text would use them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from english_german import generate_split
from helpers import begun, write_linked_pairs
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import T5Config, T5ForConditionalGeneration
from warm import warm

import hf_attncal
from hf_attncal.commands import main
from hf_attncal.training.adapter import AdapterConfig
from hf_attncal.training.request import TrainingRequest

LAYERS = ["encoder_layers=1", "decoder_layers=1", "max_position_embeddings=64"]
TINY = [f"model.{setting}" for setting in ("d_model=16", *LAYERS)]
HEADS = [f"model.{side}coder_{what}" for side in ("en", "de") for what in ("attention_heads=2", "ffn_dim=16")]
RUNNING = ["training.bf16=false", "training.tokens_per_batch=200", "training.disable_tqdm=true"]
SCORING = ["evaluation.num_beams=1", "evaluation.max_new_tokens=4"]
MARIAN = ["tokenizer.vocab_size=150", *TINY, *HEADS, *RUNNING, *SCORING]
ADAPTER = [*RUNNING, *SCORING]
LANGUAGE = ["tokenizer.vocab_size=100", "model.d_model=16", "model.decoder_ffn_dim=16", *RUNNING]
ALIGNER = ["tokenizer.vocab_size=150", *TINY, "model.attention_heads=2", "model.ffn_dim=16", *RUNNING]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder of text: `train`, `dev` and `test`, in `.en` and `.de`, with gold links in `.align`."""
    folder = tmp_path_factory.mktemp("text")
    split = generate_split(120, 12, 12, seed=5)
    write_linked_pairs(folder, train=split.train, dev=split.valid, test=split.test)
    return folder


def files(text: Path, *splits: str, gold: bool = False) -> list[str]:
    """The options for the text of these splits, with annotated links if they are asked for."""
    sides = {"source": "en", "target": "de"}
    options = [f"--{side}={text / f'train.{suffix}'}" for side, suffix in sides.items()]
    suffixes = [*sides.values(), *(["align"] if gold else [])]
    for split in splits:
        options += [f"--{split}", *(str(text / f"{split}.{suffix}") for suffix in suffixes)]
    return options


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.fixture
def asked(monkeypatch):
    """Record job and settings of each command that the test runs, without training."""
    runs = []
    monkeypatch.setattr(TrainingRequest, "run", lambda self, job, load, base, **_: runs.append((self, job, base)))
    return runs


@pytest.fixture(scope="module")
def base(text, tmp_path_factory):
    """A finished model without a switch."""
    folder = tmp_path_factory.mktemp("base") / "model"
    arguments = [*files(text, "dev", "test"), "--output", str(folder), "training.max_steps=4"]
    assert main(["train", *arguments, "card.license=cc-by-4.0", "card.languages=[en, de]", *MARIAN]) == 0
    return folder


# ---- from text to what can be used ----


def test_train_leaves_a_model_with_its_scores_and_its_card(base):
    left = results(base)
    assert (left["steps"], left["config"]["preset"]) == (4, "small")
    assert "calibration" not in left["config"]["model"]
    assert {"dev", "test"} <= left.keys()
    card = ModelCard.load(base / "README.md")
    assert (card.data.license, card.data.language) == ("cc-by-4.0", ["en", "de"])
    assert "`train.en`, `train.de`: 120 sentence pairs" in card.text
    assert f"| BLEU on test | {left['test']['bleu']:.1f} |" in card.text
    assert str(base.parent) not in card.text


def test_train_calibrates_and_holds_out_what_it_measures(text, tmp_path, capsys):
    output = tmp_path / "model"
    settings = ["training.num_train_epochs=0.5", "training.seed=7", "data.lowercase=true", *MARIAN]
    command = ["train", *files(text), "--output", str(output), "--model=leaky+gumbel+gated"]
    assert main([*command, *settings]) == 0
    left = results(output)
    assert left["command"].startswith("attncal train --source=train.en")
    model = left["config"]["model"]
    assert [model[name] for name in ("calibration", "leaky", "gumbel")] == ["gated", True, True]
    assert (left["config"]["training"]["seed"], left["config"]["data"]["lowercase"]) == (7, True)
    assert left["sentence_pairs"]["dev"]["kept"] == 12
    card = ModelCard.load(output / "README.md")
    assert card.data.license is None
    assert "gated calibration and a NULL column and Gumbel choice" in card.text
    assert "BLEU on dev (held-out training text)" in card.text
    assert f"{output}: {left['steps']} steps in" in capsys.readouterr().out


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(("kind", "named"), [("aligner", "an aligner that counts"), ("t5", "a model of type `t5`")])
def test_adapt_refuses_a_model_of_another_kind_before_anything_else(kind, named, dry_run, text, tmp_path, capsys):
    model = "deen"
    if kind == "t5":
        model = str(tmp_path / "t5")
        sizes = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
        T5ForConditionalGeneration(T5Config(**sizes)).save_pretrained(model)
        capsys.readouterr()
    output = tmp_path / "adapter"
    options = ["--dry-run"] if dry_run else []
    assert main(["adapt", model, *files(text), "--output", str(output), *options]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("attncal: error: `model.checkpoint` must be an encoder-decoder such as Marian")
    assert named in err
    assert not output.exists()


def test_adapt_leaves_an_adapter_with_its_card(base, text, tmp_path, capsys):
    output = tmp_path / "adapter"
    settings = [
        "card.license=mit",
        "--calibration=fixed",
        "adapter.mask_penalty=0.2",
        "training.max_steps=4",
        *ADAPTER,
    ]
    assert main(["adapt", str(base), *files(text, "test"), "--output", str(output), *settings]) == 0
    left = results(output)
    assert (left["steps"], left["config"]["adapter"]["mask_penalty"]) == (4, 0.2)
    assert set(left["test"]) == {"trained", "base"}
    card = ModelCard.load(output / "README.md")
    assert (card.data.license, card.data.library_name, card.data.base_model) == ("mit", "peft", None)
    assert "# adapter\n\nAn adapter for model: fixed calibration." in card.text
    assert "| BLEU on test, the base model |" in card.text
    assert "## Attention-calibration adapter" in card.text  # what it always says
    assert capsys.readouterr().out.splitlines()[-1].startswith("Use it: attncal translate")
    assert main(["align", "run", str(output), f"--source={text / 'test.en'}", f"--target={text / 'test.de'}"]) == 0


@pytest.mark.parametrize("command", [["train"], ["align", "train"]], ids=" ".join)
def test_links_of_the_command_line_are_of_the_text_of_the_file(command, text, tmp_path, asked):
    file = tmp_path / "config.yaml"
    job = "translation" if command == ["train"] else "aligner"
    root = f"root: '{tmp_path}', "
    for inside, links in (("", str(text / "train.align")), (root, str(text / "train.align"))):
        entries = "train: {source: s.en, target: s.de, guide: s.links}, dev: {source: d.en, target: d.de}"
        file.write_text(f"job: {job}\ndata: {{{inside}{entries}}}\n")
        given = [*command, f"--config={file}", f"--output={tmp_path / 'model'}"]
        assert main([*given, f"--links={links}", f"--dev={text / 'dev.align'}"]) == 0
        data = TrainingRequest.values(*asked.pop())["data"]
        assert data["train"] == {"source": "s.en", "target": "s.de", "guide": links}
        assert data["dev"] == {"source": "d.en", "target": "d.de", "gold": str(text / "dev.align")}
        assert main([*given, *files(text)]) == 0
        assert "guide" not in TrainingRequest.values(*asked.pop())["data"]["train"]


@pytest.mark.parametrize(
    ("given", "calibration"),
    [
        (["--calibration=guided+annealed"], "annealed"),
        (["--config={file}", "--calibration=guided"], "gated"),
        (["--calibration=leaky+none"], None),
        (["--calibration=none+output_gate"], None),
        (["adapter.output_gate=true"], "gated"),
        ([], "gated"),
    ],
)
def test_the_calibration_of_an_adapter_is_the_option(given, calibration, base, text, tmp_path, asked):
    """A guided one has none by itself; the file of --config goes before that."""
    file = tmp_path / "config.yaml"
    file.write_text("adapter: {calibration: gated}\n")
    given = [option.format(file=file) for option in given]
    assert main(["adapt", str(base), *files(text), f"--output={tmp_path / 'adapter'}", *given]) == 0
    assert AdapterConfig.make(TrainingRequest.values(*asked[0])).method_config().calibration == calibration


@pytest.mark.parametrize(("command", "links_from"), [("train", "file"), ("adapt", "counts")])
def test_a_guided_head_gives_the_links_of_translations(command, links_from, base, text, tmp_path, capsys):
    output, found = tmp_path / "model", tmp_path / "links.txt"
    name, base_and_settings = ("--model", MARIAN)
    if command == "adapt":
        name, base_and_settings = ("--calibration", [str(base), *ADAPTER, "adapter.guided_rank=4"])
    given = [f"{name}=guided" if links_from == "counts" else f"--links={text / 'train.align'}", "training.max_steps=4"]
    command_line = [command, *base_and_settings, *files(text, "test", gold=True), "--output", str(output), *given]
    assert main(command_line) == 0
    left = results(output)
    assert ("counts" in left) == (links_from == "counts")
    assert f"test: AER {100 * left['alignment']['test']['aer']:.1f}  AER|base:0" in capsys.readouterr().out
    if command == "adapt":
        assert left["config"]["adapter"]["calibration"] is None
        assert left["trained_parameters"] == 2 * 4 * (16 + 8)
    translate = [f"--source={text / 'test.en'}", f"--output={tmp_path / 'out'}", f"--alignments={found}"]
    assert main(["translate", str(output), *translate]) == 0
    assert len(found.read_text().splitlines()) == 12
    assert main(["align", "run", str(output), f"--source={text / 'test.en'}", f"--target={text / 'test.de'}"]) == 0


@pytest.mark.parametrize("preset", ["hmm", "small"])
@pytest.mark.filterwarnings("ignore:The aligner is probably bad")
def test_align_train_leaves_an_aligner_with_its_card(preset, text, tmp_path, capsys):
    output = tmp_path / "aligner"
    settings = ["tokenizer.vocab_size=150"] if preset == "hmm" else ["training.max_steps=4", *ALIGNER]
    gold = files(text, "dev", "test", gold=True)
    assert main(["align", "train", *gold, "--output", str(output), f"--config={preset}", *settings]) == 0
    told = capsys.readouterr().out
    left = results(output)
    assert "dev: AER" in told
    assert f"test: AER {100 * left['test']['aer']:.1f}  " in told
    card = ModelCard.load(output / "README.md")
    assert card.data.license is None
    assert f"| AER on test | {100 * left['test']['aer']:.1f} |" in card.text
    assert ("counts alone" in card.text) == (preset == "hmm")


def test_a_file_of_settings_and_options_work_together(text, tmp_path):
    """Options before the file, `section.key=value` before both, and a setting in place of an option like an option."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine.en").write_bytes((text / "train.en").read_bytes())
    (root / "mine.de").write_bytes((text / "train.de").read_bytes())
    config = tmp_path / "config.yaml"
    config.write_text(
        f"job: translation\ndata: {{root: '{root}', train: {{source: mine.en, target: mine.de}}}}\n"
        f"training: {{output_dir: '{tmp_path / 'other'}', max_steps: 9, seed: 3, learning_rate: 1e-3}}\n"
    )
    output = tmp_path / "model"
    options = ["--config", str(config), "--output", str(output), "training.max_steps=2", "training.max_steps=3"]
    dev = files(text, "dev")[2:]
    assert main(["train", *options, *dev, *MARIAN]) == 0
    left = results(output)
    training = left["config"]["training"]
    assert (left["steps"], training["seed"], training["learning_rate"]) == (3, 3, 1e-3)
    assert (left["config"]["preset"], "warmup_steps" in training) == (None, False)
    assert set(left["data_sha256"]) == {"mine.en", "mine.de", "dev.en", "dev.de"}
    assert not (tmp_path / "other").exists()


def test_train_makes_a_language_model_of_one_text(text, tmp_path, capsys):
    output = tmp_path / "my model"
    given = [f"--source={text / 'train.en'}", f"--test={text / 'test.en'}", "--model=discrete-2", "card.license=mit"]
    assert main(["train", *given, "--output", str(output), "training.max_steps=4", *LANGUAGE]) == 0
    left = results(output)
    assert (left["steps"], left["config"]["model"]["streams"], left["config"]["preset"]) == (4, 2, "small")
    assert {name: kept["kept"] for name, kept in left["sequences"].items()} == {"train": 108, "test": 12, "dev": 12}
    card = ModelCard.load(output / "README.md")
    assert (card.data.license, card.data.pipeline_tag) == ("mit", "text-generation")
    assert f"| perplexity on test | {left['test']['perplexity']:.3f} |" in card.text
    assert capsys.readouterr().out.endswith(f"\nUse it: the Python example in '{output}'/README.md\n")


@pytest.mark.parametrize(
    ("given", "kind", "slots"),
    [([], "words", 50), (["model.max_copied_tokens=5"], "words", 5), (["tokenizer.pretrained={base}"], None, None)],
)
def test_slots_are_for_a_vocabulary_of_whole_words(given, kind, slots, text, base, asked):
    given = [one.format(base=base) for one in given]
    assert main(["train", "--model=summarizer+copy", *files(text), "--output=o", *given]) == 0
    _, _, made = asked.pop()
    assert (made["model"]["copy"], made["model"].get("max_copied_tokens")) == (True, slots)
    assert made.get("tokenizer", {}).get("kind") == kind


PAIRS = ["--source={text}/train.en", "--target={text}/train.de"]
CONFIGS = Path(__file__).parents[2] / "configs"
FILES = [(job, path) for job in ("translation", "summarization", "language") for path in CONFIGS.glob(f"{job}/*.yaml")]


@pytest.fixture
def job(asked):
    """`attncal train` with these arguments, up to the choice of its job: the name of that."""

    def choose(*arguments: str) -> str:
        assert main(["train", *arguments]) == 0
        return asked.pop()[1]

    return choose


@pytest.mark.parametrize(("made_for", "path"), FILES, ids=lambda value: getattr(value, "stem", value))
def test_the_job_is_that_of_the_file(made_for, path, job):
    assert job("--config", str(path), "--output=o") == made_for


def test_a_file_has_its_job_and_an_option_cannot_change_it(job, text, tmp_path, capsys):
    file = CONFIGS / "summarization" / "headlines_base.yaml"
    assert job(*files(text), "--output=o") == "translation"
    assert job("--config", str(file), *files(text)) == "summarization"
    plain = tmp_path / "plain.yaml"
    plain.write_text("training: {output_dir: o}\n")
    assert job("--config", str(plain), *files(text), "--model=summarizer") == "summarization"
    assert job("--config", str(plain), *files(text), "job=summarization") == "summarization"
    assert main(["train", "--config", str(plain), *files(text)]) == 1
    assert "`job` must be translation, summarization or language here, got None. Add it to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "made_for", "others"),
    [(["train", "--model=translator"], "summarization", "translation"), (["align", "train"], "encoder", "aligner")],
)
def test_a_file_of_another_job_is_refused_by_name(command, made_for, others, text, tmp_path, capsys):
    file = tmp_path / "settings.yaml"
    file.write_text(f"job: {made_for}\n")
    assert main([*command, *files(text), f"--config={file}", f"--output={tmp_path / 'o'}"]) == 1
    assert f"`job` must be {others} here, got {made_for!r}." in capsys.readouterr().err


# ---- a dry run ----


def plans(text: Path, base: Path) -> dict[str, list[str]]:
    return {
        "train": ["train", *files(text), *MARIAN],
        "adapt": ["adapt", str(base), *files(text), *ADAPTER],
        "train, language": ["train", f"--source={text / 'train.en'}", *LANGUAGE],
        "align train hmm": ["align", "train", *files(text), "--config=hmm", "tokenizer.vocab_size=150"],
    }


@pytest.mark.parametrize("name", plans(Path(), Path()))
def test_a_dry_run_leaves_nothing_behind(name, base, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = sorted(base.rglob("*"))
    assert main([*plans(text, base)[name], "--output=model", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert sorted(base.rglob("*")) == before
    sizes, _, settings = told.partition("\ndata:\n")
    assert re.search(r"^train: [\d,]+ lines$", sizes, re.M)
    assert yaml.safe_load(f"data:\n{settings}").keys() >= {"data", "training", "model", "preset"}


# ---- Ctrl-C ----


@pytest.mark.parametrize(
    "moment",
    [
        "run.json",
        pytest.param("checkpoint-4", marks=pytest.mark.slow),
        pytest.param("checkpoint-30", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_prints_the_command_to_continue(moment, text, tmp_path):
    """The printed command ends with the weights of an uninterrupted run."""

    def command(output: str) -> list[str]:
        settings = ["training.save_steps=2", "average_last=3", *MARIAN]
        return ["train", *files(text), "--output", str(tmp_path / output), "training.max_steps=60", *settings]

    attncal = [sys.executable, "-m", "hf_attncal"]
    path = ":".join([str(Path(hf_attncal.__file__).parents[1]), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        warm([*attncal, *command("run")]), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / moment).exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    if moment == "run.json":
        assert last == f"attncal: interrupted. There is no checkpoint in {tmp_path / 'run'} yet. Start again."
        return
    told = re.fullmatch(r"attncal: interrupted. Go on with: attncal (.*) --resume", last)
    assert main([*told[1].split(), "--resume"]) == main(command("whole")) == 0
    run, whole = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "whole"))
    assert all(run[name].equal(tensor) for name, tensor in whole.items())


# ---- what a stranger gets wrong ----


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--source must be given, or `data.train` in the file of --config."),
        (["--target={text}/train.de", "--output=o"], "--source and --target belong together: give all or none."),
        (
            ["--source={text}/train.en", "--output=o", "--config=base"],
            "`preset` must be one of ('small',), got 'base'",
        ),
        (["--source={text}/train.en", "--model=summarizer"], "--model names a summarization, which needs pairs"),
        (["--source={text}/train.en", "--model=luong"], "`luong` of --model needs --target"),
        (["--source={text}/train.en", "--links={text}/train.align"], "--links is for pairs of --source and --target."),
        (
            ["--source={text}/train.en", "--dev", "{text}/dev.en", "{text}/dev.de"],
            "--dev takes one file of a language",
        ),
        ([*PAIRS, "--dev", *["{text}/dev.en"] * 4], "--dev takes SOURCE TARGET [LINKS], got 4 files."),
        ([*PAIRS, "--model=mariana"], "--model must be one or more of marian, bart, "),
        ([*PAIRS, "--model=gated+fixed"], "`gated` and `fixed` of --model cannot go together"),
        (
            [*PAIRS, "--model=discrete-2+copy"],
            "`copy` of --model is not for a Discrete Transformer, which takes leaky. Leave one of them out.",
        ),
        ([*PAIRS, "--model=guided+summarizer"], "`guided` needs a translation"),
        (PAIRS, "--output must be given, or `training.output_dir`"),
        (["--source={text}/train.en", "--target={text}/dev.de", "--output=o"], "120 and"),
        (["--source={empty}", "--target={empty}2", "--output=o"], "is empty (0 bytes without text)"),
        (["--config={text}/train.en"], "must hold sections of keys"),
    ],
)
def test_errors_are_one_line(arguments, told, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("")
    (tmp_path / "empty2").write_text("")
    places = {"text": text, "empty": tmp_path / "empty"}
    assert main(["train", *(argument.format(**places) for argument in arguments)]) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("attncal: error: ")
    assert told.format(**places) in last
    assert "this is a bug" not in last
    assert not begun(tmp_path / "o")


def test_settings_may_stand_anywhere(tmp_path, capsys, monkeypatch):
    """Behind the files of --source, and between options: argparse would take them for something else."""
    monkeypatch.chdir(tmp_path)
    for side in ("en", "de"):
        (tmp_path / side).write_text("a b\n" * 9)
    order = ["--source", "en", "training.wrong=1", "--target", "de", "--output", "o"]
    assert main(["train", *order]) == 1
    assert "unknown key `training.wrong`" in capsys.readouterr().err
