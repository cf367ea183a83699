"""`attncal align train` and `attncal align select`."""

import json
import os
import re
import threading

import pytest
from english_german import generate_split
from helpers import TINY, scatter, write_linked_pairs

import hf_attncal
from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.alignment import Gold, Seq2SeqAttention, WordAligner
from hf_attncal.alignment.attention_heads import choose_reading
from hf_attncal.commands import main
from hf_attncal.data.tokenizer import train_bpe_tokenizer

SMALL = [
    "model.d_model=16",
    "model.ffn_dim=16",
    "model.attention_heads=2",
    "tokenizer.vocab_size=300",
    "training.tokens_per_batch=300",
    "training.bf16=false",
    "training.disable_tqdm=true",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    split = generate_split(200, 20, 1, seed=5)
    write_linked_pairs(folder, train=split.train, dev=split.valid)
    return folder


@pytest.fixture(scope="module")
def translator(corpus, tmp_path_factory):
    """A tiny random translation model for the corpus."""
    folder = tmp_path_factory.mktemp("translator")
    lines = [line for side in ("en", "de") for line in (corpus / f"train.{side}").read_text().splitlines()]
    tokenizer = train_bpe_tokenizer(lines, vocab_size=300)
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    fields = TINY | special | {"vocab_size": len(tokenizer), "decoder_start_token_id": tokenizer.pad_token_id}
    model = AttnCalMarianMTModel(AttnCalMarianConfig(**fields | {"max_position_embeddings": 64}))
    scatter(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(corpus, output, *arguments):
    files = ["--source", str(corpus / "train.en"), "--target", str(corpus / "train.de")]
    return main(["align", "train", *files, "--output", str(output), *arguments])


def test_train_then_run_then_score(corpus, tmp_path, capsys):
    dev = ["--dev", *(str(corpus / f"dev.{suffix}") for suffix in ("en", "de", "align"))]
    settings = ["training.max_steps=10", "data.lowercase=true", *SMALL]
    assert train(corpus, tmp_path / "aligner", f"--links={corpus / 'train.align'}", *dev, *settings) == 0
    assert "dev: AER" in capsys.readouterr().out
    config = json.loads((tmp_path / "aligner" / "config.json").read_text(encoding="utf-8"))
    assert (config["lowercase"], config["d_model"]) == (True, 16)
    results = json.loads((tmp_path / "aligner" / "results.json").read_text(encoding="utf-8"))
    assert results["steps"] == 10

    links = str(tmp_path / "links")
    text = [f"--source={corpus / 'dev.en'}", f"--target={corpus / 'dev.de'}"]
    assert main(["align", "run", str(tmp_path / "aligner"), *text, f"--output={links}", "--threshold=0.01"]) == 0
    assert main(["score", str(corpus / "dev.align"), links]) == 0
    assert "AER" in capsys.readouterr().out


def test_training_goes_on_from_a_checkpoint(corpus, tmp_path, capsys):
    output, saved = tmp_path / "aligner", "training.save_steps=2"
    assert train(corpus, output, "training.max_steps=4", saved, *SMALL) == 0
    assert train(corpus, output, "training.max_steps=4", *SMALL) == 1
    assert "holds another run" in capsys.readouterr().err
    assert train(corpus, output, "training.max_steps=4", "--resume", saved, *SMALL) == 0
    assert "Nothing to train" in capsys.readouterr().out
    assert train(corpus, output, "training.max_steps=6", "--resume", saved, *SMALL) == 1
    assert "`training.max_steps` is 6, but the run in" in capsys.readouterr().err


def test_training_on_a_pipe_is_refused(corpus, tmp_path, capsys):
    """Nobody writes to the pipe, so the error must come before it is opened."""
    os.mkfifo(tmp_path / "pipe")
    files = ["--source", str(tmp_path / "pipe"), "--target", str(corpus / "train.de")]
    assert main(["align", "train", *files, "--output", str(tmp_path / "aligner")]) == 1
    assert "pipe must be a file, got a pipe" in capsys.readouterr().err
    assert not (tmp_path / "aligner").exists()


def test_select_reads_pipes_once(corpus, translator, tmp_path, capsys):
    names = {"source": corpus / "dev.en", "target": corpus / "dev.de", "gold": corpus / "dev.align"}
    files = [f"--{option}={file}" for option, file in names.items()]
    assert main(["align", "select", str(translator), *files, "--device=cpu", f"--output={tmp_path}"]) == 0
    expected = capsys.readouterr().out
    writers, pipes = [], []
    for option, file in names.items():
        os.mkfifo(tmp_path / option)
        pipes.append(f"--{option}={tmp_path / option}")
        writers.append(threading.Thread(target=(tmp_path / option).write_bytes, args=[file.read_bytes()], daemon=True))
        writers[-1].start()
    assert main(["align", "select", str(translator), *pipes, "--device=cpu", f"--output={tmp_path}"]) == 0
    assert capsys.readouterr().out == expected


def test_select_writes_the_best_attention(corpus, translator, tmp_path, capsys):
    files = [f"--{name}={corpus / f'dev.{suffix}'}" for name, suffix in (("source", "en"), ("target", "de"))]
    gold, attention = f"--gold={corpus / 'dev.align'}", ["--read", "weights=attention"]
    assert main(["align", "select", str(translator), *files, gold, *attention, f"--output={tmp_path}"]) == 0
    heading, *rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert len(rows) == 10
    assert heading.split() == ["reading", "AER,", "%"]
    rates = [float(row.split()[-1]) for row in rows]
    assert rates == sorted(rates)
    assert (tmp_path / "alignment.json").is_file()

    annotated = Gold.read(corpus / "dev.en", corpus / "dev.de", corpus / "dev.align")
    aligner = WordAligner.from_pretrained(translator, device="cpu")
    text = zip(*annotated.pairs, strict=True)
    ranked = choose_reading(aligner.model, aligner.tokenizer, *map(list, text), annotated.links, weights="attention")
    assert [f"{100 * score.aer:.1f}" for _, score in ranked[:10]] == [row.split()[-1] for row in rows]
    assert Seq2SeqAttention.load(tmp_path) == ranked[0][0]
    assert rows[0].startswith(f"layer={ranked[0][0].layer} ")

    lists = ((corpus / f"dev.{end}").read_text(encoding="utf-8").splitlines() for end in ("en", "de", "align"))
    source, target, links = lists
    running = hf_attncal.Running(device="cpu")
    found = hf_attncal.select(
        translator, source, target, gold=links, read={"weights": "attention"}, output=tmp_path, running=running
    )
    assert list(found) == list(ranked)
    assert str(found).splitlines()[1:11] == rows

    assert main(["align", "select", str(translator), *files, gold, "--read", "layer=1"]) == 1
    assert "--read layer" in capsys.readouterr().err
    assert main(["align", "select", "Helsinki-NLP/nowhere", *files, gold]) == 1
    assert "is not a folder" in capsys.readouterr().err
    short = f"--gold={tmp_path / 'short'}"
    (tmp_path / "short").write_text("0-0\n", encoding="utf-8")
    assert main(["align", "select", str(translator), *files, short]) == 1
    assert "1 lines of links for 20 sentence pairs" in capsys.readouterr().err

    lines = (corpus / "dev.align").read_text(encoding="utf-8").splitlines()
    ones = [re.sub(r"\d+", lambda index: str(int(index[0]) + 1), line) for line in lines]
    bad = [*lines[:2], "x", *lines[3:]]
    for links, problem in ((ones, "take 1 from each index"), (bad, "line 3: 'x' is not a link")):
        (tmp_path / "short").write_text("".join(f"{line}\n" for line in links), encoding="utf-8")
        assert main(["align", "select", str(translator), *files, short]) == 1
        error = capsys.readouterr().err
        assert f"{tmp_path / 'short'}: " in error
        assert problem in error
