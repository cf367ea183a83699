"""The benchmarks of the word aligner: what they time and score is what they say."""

import importlib
import json
import os
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import scatter

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.symmetrization import symmetrize_links
from hf_attncal.data.pharaoh import parse_alignments
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.modeling_mask_align import MaskAlignModel

ROOT = Path(__file__).resolve().parents[2]
TINY = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2, "ffn_dim": 8}


@pytest.fixture(scope="module")
def modules():
    """The benchmarks as modules, with tiny models."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("benchmarks", "experiments"):
            patch.syspath_prepend(str(ROOT / folder))
        aligning, aligners = importlib.import_module("aligning"), importlib.import_module("aligners")
        size = {"tokenizer": {"vocab_size": 40}, "model": TINY | {"prediction": "mixture", "sampled_softmax": True}}
        sizes = {
            "small": size | {"training": {"tokens_per_batch": 200}},
            "hmm": {"tokenizer": {"vocab_size": 40}, "model": {}, "training": {}},
            "base": size | {"tokenizer": {"vocab_size": 60}, "training": {"tokens_per_batch": 300}},
        }
        patch.setattr(aligning, "SIZES", sizes)
        encoder = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        patch.setattr(aligning, "ENCODER", encoder | {"intermediate_size": 8})
        patch.setenv("RAYON_NUM_THREADS", "1")
        yield SimpleNamespace(aligning=aligning, aligners=aligners)


@pytest.fixture
def aligning(modules):
    return modules.aligning


@pytest.fixture
def aligners(modules):
    return modules.aligners


def options(aligning, *arguments: str):
    """The benchmark's arguments, on one thread of the CPU."""
    return aligning.make_parser().parse_args(["--device", "cpu", "--threads", "1", *arguments])


# ---- aligning.py: sentences ----


def test_sentences_have_the_lengths_and_the_frequencies_that_are_stated(aligning):
    sentences = aligning.Sentences.draw(4000, 3)
    assert sentences.lengths.min() >= 1
    assert sentences.lengths.max() == 100
    assert sentences.lengths.mean() == pytest.approx(25, abs=1)
    assert np.corrcoef(np.log(sentences.lengths).T)[0, 1] > 0.9
    assert sentences.starts.mean() == pytest.approx(0.75 + 0.25 / 25, abs=0.02)
    ids = np.concatenate([side for pair in sentences.ids(400) for side in pair])
    assert len(ids) == sentences.lengths.sum()
    counts = np.bincount(ids, minlength=400)
    assert not counts[:2].any()
    assert counts[2] > 1.5 * counts[3] > 2 * counts[10] > 0
    assert ids.max() == 399


def test_batches_are_those_of_the_aligner(aligning, monkeypatch):
    args = options(aligning, "--batch-size", "7", "--batch-tokens", "300")
    sentences = aligning.Sentences.draw(300, 3)
    pairs = [tuple(aligning.text_of(side, 40) for side in pair) for pair in sentences.ids(40)]
    aligner = aligning.aligner_of(args, "small", pairs[:8])
    seen = []
    alignments = aligner.model.alignments

    def spy(**batch):
        seen.append(batch)
        return alignments(**batch)

    monkeypatch.setattr(aligner.model, "alignments", spy)
    aligner.align(pairs, batch_size=7, batch_tokens=300)
    built = aligning.padded_batches(args, 40, sentences)
    assert len(seen) == len(built) > 50
    for one, other in zip(seen, built, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert torch.equal(one[name], other[name]), name


# ---- aligning.py: times ----


def test_runs_are_timed_in_turn(aligning):
    order = []
    runs = {name: (lambda name=name: order.append(name)) for name in "abc"}
    seconds = aligning.timed_in_turn(options(aligning, "--rounds", "3", "--warmup", "1"), runs)
    assert "".join(order) == "abc" + "bca" + "cab" + "abc"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_the_whole_run(aligning, tmp_path):
    output = tmp_path / "new" / "result.json"
    arguments = ["--device", "cpu", "--threads", "1", "--pairs", "12", "--rounds", "2", "--train-steps", "1"]
    aligning.main([*arguments, "--output", str(output)])
    result = json.loads(output.read_text())
    assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert result["config"]["benchmark"] == "aligning"
    assert result["config"]["pairs"] == 12
    assert {"cpu", "threads"} <= result["hardware"].keys()
    sentences = aligning.Sentences.draw(12, 1)
    assert result["sentences"]["tokens"] == sentences.lengths.sum()
    encoder = result["encoder"]
    tables, layer = (50 + 512 + 2 + 2) * 8, 4 * 72 + 2 * 72 + 2 * 16
    assert encoder["parameters"] == tables + layer
    assert result["aligners"].keys() == {"small", "hmm", "base"}
    for measured in result["aligners"].values():
        assert measured["links_a_pair"] > 1
        for part in (measured["forward"], measured["text_to_links"]):
            assert len(part["seconds"]) == 2
            ratios = [theirs / ours for theirs, ours in zip(encoder["seconds"], part["seconds"], strict=True)]
            assert part["ratio_to_encoder"]["min"] == min(ratios)
            assert part["ratio_to_encoder"]["max"] == max(ratios)
            assert part["pairs_per_second"]["max"] == 12 / min(part["seconds"])
            assert part["tokens_per_second"]["max"] == sentences.lengths.sum() / min(part["seconds"])
    for size in ("small", "base"):
        assert len(result["training"][size]["seconds"]) == 2
        assert result["training"][size]["tokens_per_batch"] == 200  # on a CPU
        assert result["training"][size]["tokens_per_second"]["median"] > 0
    assert "memory" not in result


def test_training_counts_the_tokens_that_it_trains_on(aligning, monkeypatch):
    real, losses = [], []
    forward = MaskAlignModel.forward

    def spy(model, **batch):
        assert model.training
        assert batch["return_loss"]
        assert max(batch["input_ids"].numel(), batch["target_input_ids"].numel()) <= 150
        real.append(int(batch["attention_mask"].sum() + batch["target_attention_mask"].sum()))
        output = forward(model, **batch)
        losses.append(output.loss.item())
        return output

    monkeypatch.setattr(MaskAlignModel, "forward", spy)
    steps = aligning.training_steps(options(aligning, "--train-steps", "4"), "small", 150, bf16=False)
    assert steps() == sum(real)
    assert len(set(losses)) == len(losses) == 4


def test_sentences_of_one_token_are_left_out_of_training(aligning):
    sentences = aligning.Sentences(np.array([[3, 2], [1, 4], [2, 2]]), np.linspace(0, 0.9, 14), np.arange(14) % 2 == 0)
    kept = aligning._of_two_tokens_or_more(sentences)
    assert kept.lengths.tolist() == [[3, 2], [2, 2]]
    every = sentences.ids(40)
    for one, other in zip(kept.ids(40), [every[0], every[2]], strict=True):
        assert [side.tolist() for side in one] == [side.tolist() for side in other]


# ---- aligning.py: memory ----


def test_peaks_are_those_that_the_command_had(aligning, tmp_path, monkeypatch):
    """With a Python that writes a line for each line, and a peak of 100 bytes for each."""
    body = ["assert sys.argv[5:10] == ['-m', 'hf_attncal.commands', 'align', 'run', 'there'], sys.argv"]
    body += ["lines = [print('0-0') for line in sys.stdin]", "open(sys.argv[3], 'w').write(str(100 * len(lines)))"]
    monkeypatch.setattr(sys, "executable", script(tmp_path / "python", *body))
    run = aligning.peak_of_aligning(options(aligning), "there", 40, 2345)
    assert run["lines"] == 2345
    assert run["peak_bytes"] == 234500 * (1 if sys.platform == "darwin" else 1024)


def test_eflomal_is_counted_in_cpu_seconds(aligning, tmp_path):
    """Of the command alone, whatever else waits; it gets the sentences as text, a line each, and four files."""
    body = (
        "files = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))",
        "assert files.keys() == {'-s', '-t', '-f', '-r'}",
        "assert [len(open(files[side]).readlines()) for side in ('-s', '-t')] == [9, 9]",
        "import time",
        "time.sleep(3)",
        "while time.process_time() < 0.5: pass",
    )
    command = script(tmp_path / "eflomal-align", *body)
    measured = aligning.measure_eflomal(options(aligning, "--eflomal", command, "--eflomal-pairs", "9"))
    assert 0.4 < measured["cpu_seconds"] < 3
    assert measured["pairs_per_second"] == 9 / measured["cpu_seconds"]


# ---- aligners.py ----

# Two dev pairs and two test pairs, some upper case, an empty side in the training text, a word like the separator.
TRAIN = [("Das Haus", "the house"), ("", "nothing"), ("ein ||| Haus", "a ||| house"), ("alt", "  ")]
DEV = [("das alte Haus", "the old house"), ("ein Haus", "a house")]
TEST = [("das Haus ist alt", "the house is old"), ("Haus ein", "a house")] * 3  # fewer than six have no interval
DEV_GOLD = ["0-0 1p1 2-2", "0-0 1-1"]
TEST_GOLD = ["0-0 1-1 2-2 3-3", "0-1 1-0"] * 3


def script(path: Path, *lines: str) -> str:
    """An executable Python script."""
    path.write_text("\n".join([f"#!{sys.executable} -S", "import sys", *lines]) + "\n")
    path.chmod(0o755)
    return str(path)


# Each target word goes to the source word of its own position or to the last; the reverse direction shifts by one.
LINKS = """
def forward(s, t):
    return [(min(j, len(s) - 1), j) for j in range(len(t))]
def backward(s, t):
    return [(i, min(i + 1, len(t) - 1)) for i in range(len(s))]
def line(links):
    return ' '.join(f'{i}-{j}' for i, j in links) + '\\n'
"""
EFLOMAL = """
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert list(options) == ['-s', '-t', '-f', '-r'], sys.argv
source, target = ([l.split() for l in open(options[o], encoding='utf-8')] for o in ('-s', '-t'))
assert all(source) and all(target), 'a side without words'
open(options['-f'], 'w').writelines(line(forward(s, t)) for s, t in zip(source, target))
open(options['-r'], 'w').writelines(line(backward(s, t)) for s, t in zip(source, target))
"""
FAST_ALIGN = """
assert sys.argv[1] == '-i' and sys.argv[3:6] == ['-d', '-o', '-v'], sys.argv
for text in open(sys.argv[2], encoding='utf-8'):
    s, t = (side.split() for side in text.split(' ||| '))
    assert s and t
    sys.stdout.write(line((backward if '-r' in sys.argv else forward)(s, t)))
"""
# "intersect" alone gives links that are good on dev.
ATOOLS = """
files = [open(sys.argv[sys.argv.index(o) + 1]).readlines() for o in ('-i', '-j')]
for forward, backward in zip(*files):
    print(*(f'{k}-{k}' for k in range(2)) if sys.argv[-1] == 'intersect' else '')
"""


def forward(source: list[str], target: list[str]) -> set:
    return {(min(j, len(source) - 1), j) for j in range(len(target))}


def backward(source: list[str], target: list[str]) -> set:
    return {(i, min(i + 1, len(target) - 1)) for i in range(len(source))}


def slow_aer(gold_lines: list[str], links: list[set]) -> Fraction:
    """1 - (|A & S| + |A & P|) / (|A| + |S|), one link at a time."""
    hits = total = 0
    for line, proposed in zip(gold_lines, links, strict=True):
        for token in line.split():
            total += "-" in token
        for i, j in proposed:
            total += 1
            hits += (f"{i}-{j}" in line.split()) + (f"{i}-{j}" in line.split() or f"{i}p{j}" in line.split())
    return 1 - Fraction(hits, total)


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, pairs in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        for side, suffix in enumerate(("s", "t")):
            (folder / f"{name}.{suffix}").write_text("".join(pair[side] + "\n" for pair in pairs))
    (folder / "dev.gold").write_text("".join(line + "\n" for line in DEV_GOLD))
    (folder / "test.gold").write_text("".join(line + "\n" for line in TEST_GOLD))
    return folder


@pytest.fixture
def run(aligners, data, tmp_path):
    """Run aligners.py on the files of `data`; returns what it wrote."""

    def run(*arguments) -> dict:
        names = [f"--{split}-{side}={split}.{side[0]}" for split in ("train", "dev", "test") for side in SIDES]
        golds = [f"--{split}-gold={split}.gold" for split in ("dev", "test")]
        output = tmp_path / "out.json"
        aligners.main(["--data", str(data), *names, *golds, "--output", str(output), *map(str, arguments)])
        return json.loads(output.read_text())

    return run


SIDES = ("source", "target")


@pytest.fixture
def peers(tmp_path) -> dict[str, str]:
    """Commands that behave like the real ones, each in a folder of its own."""
    commands = {}
    for name, body in (("eflomal", LINKS + EFLOMAL), ("fast_align", LINKS + FAST_ALIGN), ("atools", ATOOLS)):
        (tmp_path / name).mkdir()
        commands[name] = script(tmp_path / name / name, body)
    return commands


def merged(pairs, method: str) -> list[set]:
    words = [(source.split(), target.split()) for source, target in pairs]
    return [symmetrize_links(forward(*pair), backward(*pair), method) if all(pair) else set() for pair in words]


@pytest.mark.parametrize("name", ["eflomal", "fast_align"])
def test_a_peer_is_merged_by_what_is_best_on_dev(run, peers, name):
    result = run(f"--{name.replace('_', '-')}", peers[name], "--systems", name)
    row = result["systems"][name]
    expected = {method: float(slow_aer(DEV_GOLD, merged(DEV, method))) for method in row["dev_aer"]}
    assert row["dev_aer"] == pytest.approx(expected)
    assert len(set(expected.values())) >= 3
    assert row["symmetrization"] == min(expected, key=expected.get) == "forward"
    assert row["dev"]["aer"] == pytest.approx(min(expected.values()))
    assert row["test"]["aer"] == pytest.approx(float(slow_aer(TEST_GOLD, merged(TEST, "forward"))))
    low, high = row["test"]["interval"]
    assert low < high
    assert low <= row["test"]["aer"] <= high
    assert "symm:forward|n:6" in row["test"]["signature"]
    assert row["merged_by"] == "hf_attncal"
    assert row["seconds"] > 0
    assert set(result["skipped"]) == {"eflomal", "fast_align"} - {name}
    assert len(result["data_sha256"]) == 8
    assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert result["config"]["experiment"] == "aligners"


def test_test_has_no_part_in_the_choice(run, peers, data):
    """On test another way of merging is better by far, and it is not chosen."""
    gold = [" ".join(f"{i}-{j}" for i, j in links) for links in merged(TEST, "backward")]
    (data / "test.gold").write_text("".join(line + "\n" for line in gold))
    row = run("--eflomal", peers["eflomal"], "--systems", "eflomal")["systems"]["eflomal"]
    assert row["symmetrization"] == "forward"
    expected = float(slow_aer(gold, merged(TEST, "forward")))
    assert expected > 0.3
    assert row["test"]["aer"] == pytest.approx(expected)


@pytest.mark.parametrize("method", ["intersection", "union"])
def test_the_guide_has_a_line_for_each_training_pair(run, peers, tmp_path, method):
    guide = tmp_path / "guides" / "guide"
    arguments = ["--guide-output", guide, "--guide-symmetrization", method, "--guide-system", "eflomal"]
    run("--eflomal", peers["eflomal"], "--systems", "eflomal", *arguments)
    links = [pair.sure for pair in parse_alignments(guide.read_text().splitlines())]
    assert links == [frozenset(pair) for pair in merged(TRAIN, method)]
    assert [len(pair) for pair in links] == ([3, 0, 5, 0] if method == "union" else [1, 0, 1, 0])
    assert [path.name for path in guide.parent.iterdir()] == ["guide"]


def test_without_test_no_file_of_it_is_read(run, peers, data):
    for path in data.glob("test.*"):
        path.unlink()
    result = run("--eflomal", peers["eflomal"], "--systems", "eflomal", "--no-test")
    assert "test" not in result["systems"]["eflomal"]
    assert result["config"]["text_of_other_aligners"] == ["train", "dev"]
    assert not [name for name in result["data_sha256"] if name.startswith("test")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    """A tiny random Mask-Align model with a threshold of its own, and the results of its training."""
    folder = tmp_path_factory.mktemp("mask_align")
    tokenizer = train_bpe_tokenizer([side for pair in [*DEV, *TEST] for side in pair] * 3, vocab_size=60)
    torch.manual_seed(2)
    config = MaskAlignConfig(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, alignment_threshold=0.3, **TINY
    )
    model = MaskAlignModel(config)
    scatter(model, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "results.json").write_text(json.dumps({"wall_seconds": 12.5, "hardware": {"cpu": "x"}}))
    return str(folder)


def test_a_checkpoint_is_scored_as_it_is_saved(run, checkpoint, monkeypatch, capsys):
    monkeypatch.setenv("PATH", os.devnull)
    result = run("--model", f"ours={checkpoint}")
    assert result["skipped"].keys() == {"eflomal", "fast_align"}
    assert "eflomal is left out: no command eflomal-align in PATH" in capsys.readouterr().err
    row = result["systems"]["ours"]
    aligner = WordAligner.from_pretrained(checkpoint, device="cpu")
    for split, pairs, gold in (("dev", DEV, DEV_GOLD), ("test", TEST, TEST_GOLD)):
        links = [set(alignment.links) for alignment in aligner.align(pairs)]
        assert any(links)
        assert row[split]["aer"] == pytest.approx(float(slow_aer(gold, links)))
    assert (row["symmetrization"], row["threshold"], row["training_seconds"]) == ("harmonic", 0.3, 12.5)
