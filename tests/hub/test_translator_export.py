"""`attncal export --format ctranslate2`: the same tokens, scores and links as PyTorch, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch
from seq2seq_helpers import FAMILIES, bpe_tokenizer, randomized, sized

from hf_attncal import export, translate
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.seq2seq import Seq2SeqAttention
from hf_attncal.commands import main
from hf_attncal.hub.translator_export import _suppressed_tokens
from hf_attncal.inference.encoder_decoders import load_model
from hf_attncal.inference.generation import Search, generate_lines
from hf_attncal.inference.running import Running

pytest.importorskip("ctranslate2")
WORDS = ["the", "old", "house", "is", "here", "a"]
LINES = ["the old house is here", "", "a house", "old old house the a is"]


def saved(folder, family="marian", **switches):
    """Save a small random model; bias and norms too are no trivial ones."""
    torch.manual_seed(5)
    *_, config, model = FAMILIES[family]
    made = randomized(model(config(**sized(bpe_tokenizer()), **switches)).float())
    made.save_pretrained(folder)
    bpe_tokenizer().save_pretrained(folder)
    return folder


def copying(folder, lines):
    """Save a small model that has learned to copy lines."""
    torch.manual_seed(5)
    *_, config, model = FAMILIES["marian"]
    size = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    off = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    trained = model(config(**sized(bpe_tokenizer(), **size, **off))).float().train()
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.01)
    batch = bpe_tokenizer()(lines, return_tensors="pt", padding=True)
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
    for _ in range(150):
        optimizer.zero_grad()
        trained(**batch, labels=labels).loss.backward()
        optimizer.step()
    trained.save_pretrained(folder)
    bpe_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["marian", "bart"])
def pair(request, tmp_path_factory):
    """A model and its export, loaded."""
    folder = saved(tmp_path_factory.mktemp("model") / request.param, request.param, guided=True, guided_head=1)
    Seq2SeqAttention(layer=1, heads=(1,), shift=True, threshold=0.1).save(folder)
    done = export(folder, format="ctranslate2")
    assert done.path == folder / "ctranslate2"
    assert done.difference < 1e-4
    return folder, load_model(str(folder), Running()), load_model(str(done.path), Running())


def generated(loaded, beams, **others):
    search = Search(beams, 1.0, max_new_tokens=12, **others)
    return generate_lines(*loaded, LINES, search, batch_size=3, too_long="error", scores=True)


@pytest.mark.parametrize(
    ("beams", "others"),
    [(1, {}), (4, {}), (1, {"no_repeat_ngram_size": 2}), (2, {"min_new_tokens": 5})],
    ids=["greedy", "beams", "no_repeat", "shortest"],
)
def test_tokens_and_scores_are_those_of_pytorch(pair, beams, others):
    _, ours, theirs = pair
    expected, found = generated(ours, beams, **others), generated(theirs, beams, **others)
    assert [row.tokens for row in found] == [row.tokens for row in expected]
    assert [row.text for row in found] == [row.text for row in expected]
    for row, other in zip(expected, found, strict=True):
        assert other.token_scores == pytest.approx(row.token_scores, abs=1e-3)
        assert (other.score is None) == (row.score is None)


def test_links_are_those_of_the_guided_head(pair, tmp_path):
    """The attention of one head, of a batch with padding on both sides; threshold and head lie beside the model."""
    folder, *_ = pair
    rows = []
    for name in (folder, folder / "ctranslate2"):
        rows.append(translate(name, LINES, format="json", alignments="-", beams=1, generation={"max_new_tokens": 8}))
    assert any(row.alignment.links for row in rows[0])
    for ours, theirs in zip(*rows, strict=True):
        assert theirs.text == ours.text
        assert theirs.alignment.links == ours.alignment.links
        assert theirs.alignment.scores == pytest.approx(ours.alignment.scores, abs=1e-5)


def test_the_first_of_several_readings_is_exported(pair):
    folder, *_ = pair
    one, other = Seq2SeqAttention(1, (1,), shift=True), Seq2SeqAttention(0, shift=False)
    model, tokenizer = load_model(str(folder / "ctranslate2"), Running())
    found = [
        WordAligner(model, tokenizer, read).align([("old house", "a house")])
        for read in (one, replace(one, beside=other))
    ]
    assert found[0] == found[1]


def test_null_is_never_written():
    *_, config, model = FAMILIES["marian"]
    for switches, expected in (({}, []), ({"uam": True, "null_token_id": 5}, [5])):
        assert _suppressed_tokens(model(config(**sized(bpe_tokenizer()), **switches))) == expected


@pytest.mark.processor
def test_integers_are_a_quarter_of_the_size_and_translate(tmp_path):
    """A processor that sums products of 8 bits in 16 makes larger errors: not its numbers hold, but what it writes."""
    folder = saved(tmp_path / "random")
    exact, small = (export(folder, format=f"ctranslate2{kind}") for kind in ("", "-int8"))
    assert exact.difference < small.difference
    lines = [f"{first} {second}" for first in WORDS for second in WORDS]
    folder = copying(tmp_path / "trained", lines)
    exact = export(folder, format="ctranslate2")
    size = (exact.path / "model.bin").stat().st_size
    right = sum(line == str(row) for line, row in zip(lines, translate(exact.path, lines), strict=True))
    done = export(folder, format="ctranslate2-int8")
    assert (done.path / "model.bin").stat().st_size < 0.75 * size  # a model this small has much that is no matrix
    kept = sum(line == str(row) for line, row in zip(lines, translate(done.path, lines), strict=True))
    assert right > 0.9 * len(lines)
    assert kept > 0.5 * len(lines)


def test_switches_that_ctranslate2_lacks_are_refused(tmp_path):
    folder = saved(tmp_path / "model", calibration="gated")
    with pytest.raises(ValueError, match="no `calibration` attention"):
        export(folder, format="ctranslate2")
    assert not (folder / "ctranslate2").exists()


def test_an_export_that_differs_leaves_nothing(tmp_path, monkeypatch):
    folder = saved(tmp_path / "model")
    monkeypatch.setattr("hf_attncal.hub.translator_export._TOLERANCE", -1.0)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(ValueError, match="CTranslate2 differs from PyTorch by"):
        export(folder, format="ctranslate2")
    assert [path for path in (folder / "ctranslate2").rglob("*") if path.is_file()] == []
    assert sorted({path.name for path in folder.iterdir()} - {"ctranslate2"}) == before


def test_an_export_of_another_model_is_refused(tmp_path, capsys):
    folder = saved(tmp_path / "model")
    export(folder, format="ctranslate2")
    *_, config, model = FAMILIES["marian"]
    torch.manual_seed(9)
    model(config(**sized(bpe_tokenizer()))).save_pretrained(folder)
    assert main(["translate", str(folder / "ctranslate2"), "--source", __file__]) == 1
    told = capsys.readouterr().err
    assert "attncal export" in told
    assert "writes it again" in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--dtype", "bfloat16"], "Leave out --dtype bfloat16"),
        (["top_k=3", "do_sample=true"], "is not supported with CTranslate2"),
        (["encoder_no_repeat_ngram_size=2"], "`encoder_no_repeat_ngram_size` is not supported with CTranslate2"),
    ],
)
def test_unsupported_options_are_refused(pair, given, told, tmp_path, capsys):
    (tmp_path / "text").write_text("the house\n")
    assert main(["translate", str(pair[0] / "ctranslate2"), "--source", str(tmp_path / "text"), *given]) == 1
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


def test_a_damaged_export_is_named(tmp_path, capsys):
    folder = saved(tmp_path / "model")
    export(folder, format="ctranslate2")
    path = folder / "ctranslate2" / "exported.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layer": 0.5}))
    assert main(["translate", str(folder / "ctranslate2"), "--source", __file__]) == 1
    assert "exported.json cannot be used" in capsys.readouterr().err
    (folder / "ctranslate2" / "model.bin").write_bytes(b"x")
    export(folder, format="ctranslate2")  # writes it again
    (folder / "ctranslate2" / "model.bin").write_bytes(b"x")
    assert main(["translate", str(folder / "ctranslate2"), "--source", __file__]) == 1
    assert "ctranslate2 cannot be read" in capsys.readouterr().err
