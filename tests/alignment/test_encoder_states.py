"""Alignment from the states of an encoder; the reference is loops over tokens of one pair (`reference_encoder.py`)."""

import copy
import functools
import json

import numpy as np
import pytest
import reference_encoder as slow
import sentencepiece
import torch
from helpers import assert_close, assert_functions_agree
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, randomized, sized, text_model
from tokenizers import normalizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    RobertaConfig,
    RobertaModel,
)

from hf_attncal.alignment import (
    EncoderStates,
    GoldAlignment,
    Seq2SeqAttention,
    WordAligner,
    alignment_error_rate,
    select_states,
    select_states_by_agreement,
)
from hf_attncal.alignment.encoder import EncoderReader, link_probabilities, similarities
from hf_attncal.alignment.selection import STATE_THRESHOLDS
from hf_attncal.alignment.sources import ReadingSettings
from hf_attncal.commands import main
from hf_attncal.data.pharaoh import format_links

TEXTS = list(zip(SOURCES, TARGETS, strict=True))
GOLD = [GoldAlignment(frozenset(pair.links), frozenset(pair.links)) for pair in PAIRS]
ENCODERS = ("bert", "marian", "attncal_marian", "bart")


def of_bert(tokenizer, **changes):
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return size | tokens | dropout | {"max_position_embeddings": 64} | changes


@functools.cache
def encoder(kind):
    """A random model with an encoder, in float64, that tests share and do not change."""
    torch.manual_seed(5)
    if kind == "bert":
        return randomized(BertModel(BertConfig(**of_bert(bpe_tokenizer()))).double())
    family = kind.removeprefix("attncal_")
    return copy.deepcopy(text_model(family, "ours" if kind != family else "stock"))


def aligner(kind="bert", layer=1, threshold=0.2, **settings):
    return WordAligner(encoder(kind), bpe_tokenizer(), EncoderStates(layer, threshold, **settings))


def states_by_hand(model, text, layer):
    """The states of the tokens of a text and the word of each, by a call of the encoder with this text alone."""
    tokenizer = bpe_tokenizer()
    ids = tokenizer(text)["input_ids"]
    words = [n for n, word in enumerate(text.split()) for _ in tokenizer(word, add_special_tokens=False)["input_ids"]]
    assert len(ids) == len(words) + 1  # the end of sentence, which is no part of the alignment
    part = model.get_encoder() if model.config.is_encoder_decoder else model
    with torch.no_grad():
        found = part.eval()(input_ids=torch.tensor([ids]), output_hidden_states=True, return_dict=True)
    return found.hidden_states[layer][0, :-1], words


@pytest.mark.third("kind", "layer")
@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_links_and_scores_are_those_of_the_loops(kind, layer):
    model, threshold = encoder(kind), 0.2
    found = aligner(kind, layer, threshold).align(TEXTS)
    some = 0
    for (source, target), alignment in zip(TEXTS, found, strict=True):
        sides = [states_by_hand(model, text, layer) for text in (source, target)]
        counts = len(source.split()), len(target.split())
        best = slow.word_scores(sides[0][0], sides[1][0], sides[0][1], sides[1][1], counts)
        expected = {(i, j): float(best[i, j]) for i, j in (best > threshold).nonzero().tolist()}
        assert alignment.links == tuple(sorted(expected))
        assert alignment.scores == pytest.approx([expected[link] for link in alignment.links], abs=1e-6)
        assert (alignment.symmetrization, alignment.threshold) == ("intersection", threshold)
        assert (alignment.source_null, alignment.target_null) == (None, None)
        some += len(expected)
    assert some > 3


def test_probabilities_and_their_gradients_are_those_of_the_loops():
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (4, 5))

    def fast(source, target):
        real = torch.ones(1, 4, dtype=torch.bool), torch.ones(1, 5, dtype=torch.bool)
        forward, backward = link_probabilities(similarities(source[None], target[None], *real))
        return torch.cat([forward.flatten(), backward.flatten()])

    def by_loops(source, target):
        cells = [cell for direction in slow.probabilities(source, target) for row in direction for cell in row]
        return torch.stack(cells)

    assert_functions_agree(fast, by_loops, {"source": source, "target": target})


def test_padding_has_no_part_in_the_probabilities():
    states = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    real = torch.tensor([[True, True, True, True], [True, True, False, False]])
    forward, backward = link_probabilities(similarities(states, states.flip(0), real, real.flip(0)))
    assert_close(forward[1].sum(dim=1), torch.ones(4, dtype=torch.float64))
    assert_close(backward[0].sum(dim=1), torch.ones(4, dtype=torch.float64))
    assert float(forward[1, :, 2:].abs().max()) == float(forward[0, 2:].abs().max()) == 0
    alone, _ = link_probabilities(similarities(states[1:, :2], states[:1], real[1:, :2], real[:1]))
    assert_close(forward[1:, :, :2], alone)


@pytest.mark.parametrize("kind", ENCODERS)
def test_neither_batches_nor_order_nor_the_mode_of_the_model_change_anything(kind):
    whole = aligner(kind).align(TEXTS)
    assert any(alignment.links for alignment in whole)
    for options in ({"batch_size": 1}, {"batch_size": 2}, {"batch_tokens": 40}):
        for one, other in zip(aligner(kind).align(TEXTS, **options), whole, strict=True):
            assert one.links == other.links
            assert one.scores == pytest.approx(other.scores, abs=1e-9)
    for one, other in zip(reversed(aligner(kind).align(TEXTS[::-1])), whole, strict=True):
        assert (one.links, one.source) == (other.links, other.source)


def test_the_threshold_takes_links_away_to_the_last():
    links = [
        {link for found in aligner().align(TEXTS, threshold=t) for link in found.links} for t in (0.0, 0.2, 0.6, 1.0)
    ]
    assert links[0] > links[1] > links[2] > links[3] == set()
    everything = aligner().align(TEXTS, threshold=0.0)
    assert all(len(a.links) == len(a.source) * len(a.target) for a in everything)


def test_pairs_without_words_have_no_links():
    found = aligner().align([("", "das"), ("the", " \t"), TEXTS[0]])
    assert [a.links for a in found[:2]] == [(), ()]
    assert found[2].links == aligner().align(TEXTS[:1])[0].links


@pytest.mark.processor
def test_in_bfloat16_scores_are_near():
    model = BertModel(BertConfig(**of_bert(bpe_tokenizer()))).bfloat16()
    half = WordAligner(model, bpe_tokenizer(), EncoderStates(1)).align(TEXTS, threshold=0.0)
    whole = WordAligner(model.float(), bpe_tokenizer(), EncoderStates(1)).align(TEXTS, threshold=0.0)
    for one, other in zip(half, whole, strict=True):
        assert one.score == pytest.approx(other.score, abs=0.05)
        assert one.score != other.score


# ---- what is read of which model ----


def test_an_encoder_is_read_by_its_states_and_an_encoder_decoder_by_its_attention():
    assert WordAligner(encoder("bert"), bpe_tokenizer()).settings == EncoderStates(1)
    assert WordAligner(encoder("marian"), bpe_tokenizer()).settings is None
    both = aligner("marian", -1)
    assert both.align(TEXTS)[0].symmetrization == "intersection"
    both.choose(weights="attention", layer=1)
    assert both.settings == Seq2SeqAttention(1)
    assert both.align(TEXTS)[0].symmetrization == "forward"
    both.choose(weights="states", threshold=0.4)
    assert both.settings == EncoderStates(-1, 0.4)
    both.choose(layer=0)
    assert both.settings == EncoderStates(0, 0.4)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("bert", {"layer": 3}, r"`layer` must be from -3 to 2 \(0 is what enters the first of 2 layers\), got 3"),
        ("bert", {"layer": -4}, "`layer` must be from -3 to 2"),
        ("bert", {"layer": 1.0}, "`layer` must be a whole number"),
        ("bert", {"threshold": 1.5}, "`threshold` must be from 0 to 1, got 1.5"),
        ("bert", {"threshold": float("nan")}, "`threshold` must be from 0 to 1, got nan"),
        ("bert", {"threshold": True}, "`threshold` must be from 0 to 1, got True"),
        ("bert", {"heads": (0,)}, "`heads` is for cross-attention, and the states of an encoder are read"),
        ("bert", {"weights": "attention"}, "`weights` must be 'states' to read an encoder, got 'attention'"),
        ("bert", {"source_language": "en"}, "`source_language` is for tokenizers with language codes"),
        ("bert", {"target_prefix": 1}, "`target_prefix` must be text, got 1"),
        ("marian", {"weights": "states", "shift": True}, "`shift` is for cross-attention"),
        ("marian", {"target_language": "de"}, "`target_language` is for the states of an encoder"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind, changes, message):
    chosen = WordAligner(encoder(kind), bpe_tokenizer())

    def choose():
        chosen.choose(**changes)
        chosen.check()

    with pytest.raises(ValueError, match=message):
        choose()


def test_other_mergers_and_null_are_refused():
    with pytest.raises(ValueError, match=r"`symmetrize`.*'intersection'"):
        aligner().align(TEXTS, symmetrize="union")
    with pytest.raises(ValueError, match=r"`null`.*NULL"):
        aligner().check(null=True)


def test_attention_settings_are_not_for_an_encoder():
    with pytest.raises(ValueError, match=r"`settings`.*EncoderStates"):
        WordAligner(encoder("bert"), bpe_tokenizer(), Seq2SeqAttention(0))


def test_an_encoder_saved_under_another_head_is_loaded_without_it(tmp_path):
    torch.manual_seed(2)
    model = BertForMaskedLM(BertConfig(**of_bert(bpe_tokenizer())))
    model.save_pretrained(tmp_path)
    bpe_tokenizer().save_pretrained(tmp_path)
    EncoderStates(1, 0.3).save(tmp_path)
    loaded = WordAligner.from_pretrained(tmp_path, device="cpu")
    assert loaded.settings == EncoderStates(1, 0.3)
    assert loaded.align(TEXTS) == WordAligner(model.bert, bpe_tokenizer(), EncoderStates(1, 0.3)).align(TEXTS)


def test_settings_of_either_kind_are_read_from_alignment_json(tmp_path):
    for settings in (EncoderStates(3, 0.25, source_language="en"), Seq2SeqAttention(2, heads=(0, 1))):
        settings.save(tmp_path)
        assert ReadingSettings.load(tmp_path) == settings
    (tmp_path / "alignment.json").write_text(json.dumps({"layer": 1, "weights": "thoughts"}))
    with pytest.raises(ValueError, match=r"alignment.json.*`weights`.*'states'.*got 'thoughts'"):
        ReadingSettings.load(tmp_path)


class WithoutStates(torch.nn.Module):
    def forward(self, **inputs):
        return None


def test_an_encoder_without_states_is_refused():
    reader = EncoderReader(encoder("bert"), bpe_tokenizer(), EncoderStates(0))
    reader.encoder = WithoutStates()
    with pytest.raises(ValueError, match=r"'bert'.*no states"):
        reader.states([np.array([5, 6])], 0)


# ---- long texts ----


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_long_text_is_read_in_windows_and_nothing_is_cut(kind):
    tokenizer, positions = bpe_tokenizer(), 12
    fields = of_bert(tokenizer, max_position_embeddings=positions)
    if kind == "roberta":
        fields["max_position_embeddings"] += tokenizer.pad_token_id + 1  # RoBERTa counts positions from there
        model = RobertaModel(RobertaConfig(**fields | {"bos_token_id": 0, "eos_token_id": 0}))
    else:
        model = BertModel(BertConfig(**fields))
    model = randomized(model.double()).eval()
    reader = EncoderReader(model, tokenizer, EncoderStates(1))
    assert reader.size == positions - 1
    long, short = " ".join(SOURCES), SOURCES[0]
    ids = [text.ids for text in reader.tokenize([short, long], 0)]
    assert len(ids[1]) > 3 * positions
    with torch.no_grad():
        found = reader.states(ids, 0)[1]
        for row in (0, 1):
            assert torch.isfinite(found[row, : len(ids[row])]).all()
        first = reader.states([ids[1][: reader.size]], 0)[1]
        last = reader.states([ids[1][-reader.size :]], 0)[1]
    assert_close(found[1, :6], first[0, :6], 1e-9)  # the middle of the first window, and what lies before it
    assert_close(found[1, len(ids[1]) - 6 : len(ids[1])], last[0, -6:], 1e-9)
    (alignment,) = WordAligner(model, tokenizer, EncoderStates(1)).align([(long, long)], threshold=0.0)
    assert {i for i, _ in alignment.links} == set(range(len(long.split())))


# ---- languages, prefixes, segmentations ----


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A folder with SentencePiece models of both languages, and one vocabulary of both."""
    folder = tmp_path_factory.mktemp("pieces")
    vocabulary = ["</s>", "<unk>", "<pad>", "<s>"]
    for name, lines in (("source", SOURCES), ("target", TARGETS), ("both", SOURCES + TARGETS)):
        (folder / f"{name}.txt").write_text("\n".join(lines * 5), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"{name}.txt"),
            model_prefix=str(folder / name),
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        vocabulary += [model.id_to_piece(number) for number in range(3, model.get_piece_size())]
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys(vocabulary))}
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def m2m100(pieces):
    tokenizer = M2M100Tokenizer(str(pieces / "vocab.json"), str(pieces / "both.spm"))
    torch.manual_seed(1)
    size = {**sized(tokenizer), "vocab_size": max(tokenizer.lang_token_to_id.values()) + 1, "encoder_layerdrop": 0.0}
    return randomized(M2M100ForConditionalGeneration(M2M100Config(**size)).double()).eval(), tokenizer


def test_each_side_has_its_language_code_which_is_no_part_of_it(m2m100):
    model, tokenizer = m2m100
    settings = EncoderStates(1, source_language="en", target_language="de")
    reader = EncoderReader(model, tokenizer, settings)
    assert [frame.before.tolist() for frame in reader.frames] == [[tokenizer.get_lang_id(n)] for n in ("en", "de")]
    before = tokenizer.src_lang
    for side, (language, text) in enumerate((("en", SOURCES[0]), ("de", TARGETS[0]))):
        tokenizer.src_lang = language
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            by_hand = model.get_encoder()(**inputs, output_hidden_states=True).hidden_states
            found = reader.states([reader.tokenize([text], side)[0].ids], side)
        assert len(found) == len(by_hand)
        for one, other in zip(found, by_hand, strict=True):
            assert_close(one, other[:, 1:-1], 1e-9)
    tokenizer.src_lang = before
    exchanged = WordAligner(model, tokenizer, EncoderStates(1, source_language="de", target_language="en"))
    one, other = (a.align(TEXTS, threshold=0.0) for a in (WordAligner(model, tokenizer, settings), exchanged))
    assert one[0].scores != other[0].scores


@pytest.mark.parametrize(
    ("tokenizer_class", "languages", "before", "after"),
    [
        (NllbTokenizer, ("eng_Latn", "deu_Latn"), ["{}"], ["</s>"]),
        (MBart50Tokenizer, ("en_XX", "de_DE"), ["{}"], ["</s>"]),
        (MBartTokenizer, ("en_XX", "de_DE"), [], ["</s>", "{}"]),
    ],
)
def test_codes_stand_where_the_tokenizer_puts_them(tokenizer_class, languages, before, after):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁a", "a", "1", "."]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if tokenizer_class is NllbTokenizer:
        tokenizer = tokenizer_class(vocab=vocabulary, merges=[])
    else:
        tokenizer = tokenizer_class(vocab=[(piece, 0.0) for piece in pieces])
    kept = tokenizer.src_lang
    settings = dict(zip(("source_language", "target_language"), languages, strict=True))
    frames = EncoderReader(encoder("bert"), tokenizer, EncoderStates(1, **settings)).frames
    for language, frame in zip(languages, frames, strict=True):
        for ids, expected in zip(frame, (before, after), strict=True):
            assert tokenizer.convert_ids_to_tokens(ids.tolist()) == [piece.format(language) for piece in expected]
    for wrong in (None, "xx"):
        with pytest.raises(ValueError, match=rf"`target_language`.*got {wrong!r}"):
            EncoderReader(encoder("bert"), tokenizer, EncoderStates(1, **settings | {"target_language": wrong}))
    assert tokenizer.src_lang == kept


def test_languages_that_are_missing_or_unknown_are_named(m2m100):
    model, tokenizer = m2m100
    for settings, message in (
        (EncoderStates(1), "`source_language` must be a code of M2M100Tokenizer, such as .*, got None"),
        (EncoderStates(1, source_language="en"), "`target_language` must be a code of M2M100Tokenizer, .*, got None"),
        (EncoderStates(1, source_language="en", target_language="xx"), "`target_language` must be .*, got 'xx'"),
    ):
        with pytest.raises(ValueError, match=message):
            WordAligner(model, tokenizer, settings)
    aligner = WordAligner(model, tokenizer)  # by attention
    aligner.choose(weights="states", source_language="en", target_language="de")
    assert aligner.align(TEXTS)[0].links


def test_the_commands_want_the_languages_once(m2m100, tmp_path, capsys):
    """`select` keeps them; without them it chooses among attention, and says so."""
    for part in m2m100:
        part.save_pretrained(tmp_path)
    files = {"source": SOURCES, "target": TARGETS, "gold": [format_links(pair.links) for pair in PAIRS]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = [f"--{name}={tmp_path / name}" for name in ("source", "target")]
    select = ["align", "select", str(tmp_path), *text, f"--gold={tmp_path / 'gold'}", "--device=cpu"]
    run = ["align", "run", str(tmp_path), *text, "--device=cpu"]
    for command in (select, run):  # by attention
        assert main(command) == 1
        assert "Give --languages SOURCE-TARGET, such as en-de" in capsys.readouterr().err
    tokenizer = m2m100[1]
    tokenizer.tgt_lang = "de"
    tokenizer.save_pretrained(tmp_path)
    tokenizer.tgt_lang = None
    assert main(select) == 0
    assert "states are not tried: `source_language` must be a code of" in capsys.readouterr().err
    assert isinstance(ReadingSettings.load(tmp_path), Seq2SeqAttention)
    assert main([*run, "--read", "weights=states"]) == 1
    assert "`source_language` must be a code of M2M100Tokenizer" in capsys.readouterr().err
    languages = ["source_language=en", "target_language=de"]
    assert main([*run, "--read", "weights=states", *languages]) == 0
    assert main([*select, "--read", "weights=states", *languages]) == 0
    assert ReadingSettings.load(tmp_path).target_language == "de"
    (tmp_path / "alignment.json").unlink()
    assert main([*select, "--read=weights=states", "--languages=German-en"]) == 0
    assert ReadingSettings.load(tmp_path).source_language == "de"
    assert main([*select, "--read=weights=states", *languages]) == 0
    assert main(run) == 0


@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, where it is not installed
def test_target_text_is_segmented_by_the_model_of_the_target(pieces):
    files = [str(pieces / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = MarianTokenizer(*files)
    reader = EncoderReader(encoder("marian"), tokenizer, EncoderStates(1))
    expected = [tokenizer(SOURCES[0])["input_ids"][:-1], tokenizer(text_target=TARGETS[0])["input_ids"][:-1]]
    found = [reader.tokenize([text], side)[0].ids.tolist() for side, text in enumerate((SOURCES[0], TARGETS[0]))]
    assert found == expected
    assert expected[1] != tokenizer(TARGETS[0])["input_ids"][:-1]
    tokenizer.separate_vocabs = True
    with pytest.raises(ValueError, match="a vocabulary for each language"):
        EncoderReader(encoder("marian"), tokenizer, EncoderStates(1))


def test_a_prefix_is_read_and_has_no_words():
    plain = aligner(threshold=0.0).align([("the dog " + SOURCES[0], TARGETS[0])])[0]
    prefixed = aligner(threshold=0.0, source_prefix="the dog ").align(TEXTS[:1])[0]
    reader = aligner(source_prefix="the dog ").source.reader
    with torch.no_grad():
        found = reader.states([reader.tokenize(SOURCES[:1], 0)[0].ids], 0)[1]
        whole = states_by_hand(encoder("bert"), "the dog " + SOURCES[0], 1)[0]
    assert_close(found[0], whole[-found.shape[1] :], 1e-9)
    assert len(prefixed.source) == len(plain.source) - 2


# ---- which states ----


def test_the_first_of_the_selected_has_the_lowest_error_of_all():
    model, tokenizer = encoder("bert"), bpe_tokenizer()
    ranked = select_states(model, tokenizer, SOURCES, TARGETS, GOLD)
    assert len(ranked) == 3 * len(STATE_THRESHOLDS)
    rates = [score.aer for _, score in ranked]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    for settings, score in (ranked[0], ranked[7]):
        links = [a.links for a in WordAligner(model, tokenizer, settings).align(TEXTS)]
        assert alignment_error_rate(GOLD, links).aer == score.aer


def sentences():
    """Six of five words each, all of them different and each one token."""
    tokenizer = bpe_tokenizer()
    words = sorted(piece[1:] for piece in tokenizer.get_vocab() if piece[0] == "▁" and piece[1:].isalpha())
    assert len(words) >= 30
    return [" ".join(words[start : start + 5]) for start in range(0, 30, 5)]


def meaning(positions, words):
    """An encoder of which the states say the position of a token, the token itself, or both."""
    torch.manual_seed(4)
    model = BertModel(BertConfig(**of_bert(bpe_tokenizer(), num_hidden_layers=1, hidden_size=64))).eval()
    with torch.no_grad():
        torch.nn.init.normal_(model.embeddings.position_embeddings.weight).mul_(positions)
        torch.nn.init.normal_(model.embeddings.word_embeddings.weight).mul_(words)
    return model


def test_agreement_beyond_chance_is_of_words_and_not_of_positions():
    """Each side is the same text here: what is encoded of the words aligns, and what is of positions does, too."""
    values, texts = {}, sentences()
    for name, (positions, words) in {"positions": (3.0, 0.0), "words": (0.1, 1.0)}.items():
        ranked = select_states_by_agreement(meaning(positions, words), bpe_tokenizer(), texts, texts)
        assert [value for _, value in ranked] == sorted((value for _, value in ranked), reverse=True)
        values[name] = {(s.layer, s.threshold): value for s, value in ranked}
    assert max(values["positions"].values()) < 0.2
    assert max(values["words"].values()) > 0.8


def test_links_everywhere_and_nowhere_are_worth_nothing(monkeypatch):
    monkeypatch.setattr("hf_attncal.alignment.selection.STATE_THRESHOLDS", (0.0, 0.9, 1.0))
    ranked = select_states_by_agreement(meaning(0.1, 1.0), bpe_tokenizer(), sentences(), sentences())
    values = {(s.layer, s.threshold): value for s, value in ranked}
    assert values[0, 0.0] == values[0, 1.0] == 0 < values[0, 0.9]


@pytest.mark.parametrize(("linked", "sure"), [(((1, 1), (0, 0)), 1.0), (((1, 0), (0, 1)), 0.75)])
def test_how_sure_a_choice_by_agreement_is(linked, sure, monkeypatch):
    """Of two layers and two pairs: where each layer links another pair, the second leads if that is drawn twice."""
    scores = torch.tensor(linked).T.float()[:, :, None, None].expand(2, 2, 2, 2) * torch.eye(2)
    found = iter((list(scores), list(torch.zeros_like(scores))))
    monkeypatch.setattr("hf_attncal.alignment.selection._every_layer", lambda *_: (next(found), EncoderStates(0)))
    ranked = select_states_by_agreement(None, None, SOURCES[:2], TARGETS[:2])
    assert ranked[0][0].layer == 0
    assert ranked.sure == pytest.approx(sure, abs=0.05)
    assert str(ranked).endswith(f"Layer 0 stays ahead in {ranked.sure:.0%} of the samples of these pairs.")


def test_one_pair_is_too_little_to_agree_on():
    with pytest.raises(ValueError, match=r"two pairs.*got 1"):
        select_states_by_agreement(encoder("bert"), bpe_tokenizer(), SOURCES[:1], TARGETS[:1])


def test_sentences_that_are_not_translations_may_have_no_tokens():
    """With two pairs, each side is tried with that of the other: here one of which a tokenizer leaves nothing."""
    tokenizer = bpe_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\u200b", "")
    texts = [SOURCES[0], "\u200b"]
    assert not tokenizer(texts[1], add_special_tokens=False)["input_ids"]
    ranked = select_states_by_agreement(meaning(0.1, 1.0), tokenizer, texts, texts)
    assert max(value for _, value in ranked) > 0.8
