"""Summaries: what is copied against loops, whose search settings hold, texts that are cut."""

import copy
import itertools

import pytest
import torch
from helpers import scatter
from seq2seq_helpers import SOURCES, bpe_tokenizer, sized, text_model
from summary_helpers import KNOWN, TEXTS, UNKNOWN, copying_model, texts_of, word_tokenizer
from transformers import T5Config, T5ForConditionalGeneration

from hf_attncal.data.tokenizer import CopyTokenizer
from hf_attncal.data.word_tokens import tokenize_words
from hf_attncal.data.words import NO_WORD
from hf_attncal.inference.generation import Generated, LineTooLongError, words_of_text
from hf_attncal.inference.summarization import summarize_lines, summarize_texts

SHORT = {"num_beams": 2, "max_new_tokens": 8}


# ---- what is copied ----


@torch.no_grad()
def slow_copies(model, tokenizer, text: str, tokens: tuple[str, ...]) -> list[tuple]:
    """Return P, the copied share and the source token of each token of a single text, by loops."""
    numbers = CopyTokenizer.of(tokenizer, model.config)
    if numbers is None:
        ids = extended = tokenizer(text)["input_ids"]
        words = []
    else:
        source = numbers.source(text)
        ids, extended, words = source["input_ids"], source["extended_input_ids"], source["copied_words"]
    slots = {word: model.config.vocab_size + n for n, word in enumerate(words)}
    target = [slots[token] if token in slots else tokenizer.convert_tokens_to_ids(token) for token in tokens]
    outputs = model(
        input_ids=torch.tensor([ids]),
        extended_input_ids=torch.tensor([extended]),
        decoder_input_ids=torch.tensor([[model.generation_config.decoder_start_token_id, *target[:-1]]]),
        output_copy_probabilities=True,
    )
    found = []
    for step, token in enumerate(target):
        probability = outputs.logits[0, step].exp()[token].item()
        copied = {s: outputs.copy_probabilities[0, step, s].item() for s, x in enumerate(extended) if x == token}
        best = max(copied, key=copied.get) if copied else None
        found.append((probability, sum(copied.values()) / probability, best))
    return found


@pytest.mark.parametrize(("family", "slots"), [("marian", 3), ("bart", 3), ("luong", 3), ("marian", 0)])
def test_copies_are_those_of_the_model_token_by_token(family, slots):
    model, tokenizer = copying_model(family, slots, scale=0.3)
    texts = texts_of(tokenizer)
    options = {**SHORT, "no_repeat_ngram_size": 1}
    others = set(range(3, len(tokenizer))) - {token for text in texts for token in tokenizer(text)["input_ids"]}
    model.generation_config.forced_bos_token_id = min(others)
    found = summarize_lines(model, tokenizer, texts, copied=True, batch_size=4, **options)
    assert [line.text for line in found] == summarize_texts(model, tokenizer, texts, **options)
    for text, line in zip(texts, found, strict=True):
        if not text.strip():
            assert line == Generated("")
            continue
        assert len(line.copies) == len(line.tokens) == len(line.token_scores)
        (words,) = tokenize_words(tokenizer, [text])
        expected = slow_copies(model, tokenizer, text, line.tokens)
        for n, (copied, (probability, share, place)) in enumerate(zip(line.copies, expected, strict=True)):
            score = line.token_scores[n]
            assert score == pytest.approx(torch.tensor(probability).log().item() if n else 0.0, abs=1e-6)
            assert copied.share == pytest.approx(share, abs=1e-9)
            assert copied.source_token == place
            word = NO_WORD if place is None else words.word_ids[place]
            assert copied.source_word == (None if word == NO_WORD else word)
            assert copied.is_copied == (share > 0.5)
    shares = [copied.share for line in found for copied in line.copies]
    assert any(0.001 < share < 0.999 for share in shares)
    assert all(line.copies[0].source_token is None for line in found if line.text)


@pytest.mark.parametrize("family", ["marian", "bart", "luong"])
def test_unknown_words_are_copied_with_their_source(family):
    model, tokenizer = copying_model(family, bias=30.0)
    found = summarize_lines(model, tokenizer, TEXTS, copied=True, min_new_tokens=3, **SHORT)
    unknown = set()
    for text, line in zip(TEXTS, found, strict=True):
        words, written = text.split(), line.text.split()
        for i, j in line.links:
            assert words[i] == written[j]
        assert {j for _, j in line.links} == set(range(len(written)))  # all is copied
        unknown |= set(written) - set(KNOWN.split())
    assert unknown <= UNKNOWN
    assert unknown & set(TEXTS[-1].split())


def test_a_prefix_is_no_word_of_the_text():
    model, tokenizer = copying_model("marian", bias=30.0)
    plain = summarize_lines(model, tokenizer, [f"said {TEXTS[1]}"], copied=True, **SHORT)[0]
    (found,) = summarize_lines(model, tokenizer, TEXTS[1:2], copied=True, prefix="said ", **SHORT)
    assert found.text == plain.text
    for one, other in zip(found.copies, plain.copies, strict=True):
        assert one.source_token == other.source_token
        assert one.source_word == (other.source_word - 1 if other.source_word else None)
    assert any(copied.source_word is not None for copied in found.copies)


def test_the_words_of_a_truncated_text_are_the_first():
    model, tokenizer = copying_model("marian", bias=30.0)
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length = 5
    (cut,) = summarize_lines(model, tokenizer, TEXTS[1:2], copied=True, **SHORT)
    (short,) = summarize_lines(model, tokenizer, [" ".join(TEXTS[1].split()[:4])], copied=True, **SHORT)
    assert (cut.text, cut.copies) == (short.text, short.copies)
    assert (cut.cut_from, short.cut_from) == (10, None)


def test_a_model_that_does_not_copy_is_refused():
    with pytest.raises(ValueError, match=r"`copied=True`.*got BartForC.*`model.copy=true`"):
        summarize_lines(text_model("bart", "stock"), bpe_tokenizer(), [], copied=True)


def test_tokens_are_in_the_words_of_the_text_that_was_decoded():
    """A tokenizer may close up the space before punctuation, as older ones of the Hub do."""
    tokenizer = word_tokenizer()
    ids = [*tokenizer.convert_tokens_to_ids(["oil", ",", "gold"]), len(tokenizer), tokenizer.eos_token_id]
    of_text = [
        words_of_text(tokenizer, ids, ["Oslo"], len(tokenizer), text) for text in ("oil , gold Oslo", "oil, gold Oslo")
    ]
    assert of_text == [[0, 1, 2, 3, None], [0, 0, 1, 2, None]]


# ---- search ----


def test_no_run_of_tokens_comes_twice_in_slots_either():
    model, tokenizer = copying_model("marian", bias=30.0)
    options = {"num_beams": 2, "min_new_tokens": 6, "max_new_tokens": 6, "scores": True}
    free = summarize_lines(model, tokenizer, TEXTS, **options)
    repeated = {token for line in free for token in line.tokens if line.tokens.count(token) > 1}
    assert repeated & UNKNOWN
    for size in (1, 2):
        for line in summarize_lines(model, tokenizer, TEXTS, no_repeat_ngram_size=size, **options):
            runs = list(itertools.pairwise(line.tokens)) if size == 2 else line.tokens
            assert len(set(runs)) == len(runs)


@torch.no_grad()
def generated(model, text: str, **options) -> str:
    """Return the output of transformers' `generate` for one text."""
    ids = torch.tensor([bpe_tokenizer()(text)["input_ids"]])
    return bpe_tokenizer().batch_decode(model.eval().generate(ids, **options), skip_special_tokens=True)[0].strip()


OWN = {"num_beams": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2, "min_length": 6, "max_length": 9}
OWN |= {"early_stopping": True, "forced_bos_token_id": 5}
CALLER = {"num_beams": 2, "length_penalty": -1.0, "no_repeat_ngram_size": 1, "min_new_tokens": 3, "max_new_tokens": 7}


@pytest.fixture
def own_search(family):
    """Stock model with its own settings of the search."""
    model = copy.deepcopy(text_model(family, "stock"))
    model.final_logits_bias[0, bpe_tokenizer().eos_token_id] = 4
    model.generation_config.update(**OWN)
    return model


@pytest.mark.half("changed")
@pytest.mark.parametrize("changed", [(), *((name,) for name in CALLER), tuple(CALLER)])
def test_the_search_is_the_model_s_own_but_for_what_is_given(own_search, changed, recwarn):
    options = {name: CALLER[name] for name in changed}
    expected = dict(options)
    if "min_new_tokens" in options:  # the model's own would go before it
        expected["min_length"] = expected.pop("min_new_tokens") + 1
    if "max_new_tokens" in options:
        expected["max_length"] = expected.pop("max_new_tokens") + 1
    found = summarize_texts(own_search, bpe_tokenizer(), SOURCES, batch_size=1, **options)
    assert found == [generated(own_search, text, **expected) for text in SOURCES]
    assert [str(warning.message) for warning in recwarn] == []


def test_given_settings_matter(own_search):
    own = summarize_texts(own_search, bpe_tokenizer(), SOURCES)
    changed = {
        name: summarize_texts(own_search, bpe_tokenizer(), SOURCES, **{name: CALLER[name]}) != own for name in CALLER
    }
    assert sum(changed.values()) >= 3, changed
    stock = copy.deepcopy(text_model("bart", "stock"))
    assert stock.generation_config.num_beams is None
    assert summarize_texts(stock, bpe_tokenizer(), SOURCES[:2], max_new_tokens=5) == [
        generated(stock, text, max_new_tokens=5) for text in SOURCES[:2]
    ]


def test_nothing_is_sampled_and_each_text_has_one_summary(own_search):
    before = summarize_texts(own_search, bpe_tokenizer(), SOURCES)
    own_search.generation_config.update(do_sample=True, num_return_sequences=2, return_dict_in_generate=True)
    assert summarize_texts(own_search, bpe_tokenizer(), SOURCES) == before


def test_scores_are_by_the_penalty_that_holds(own_search):
    for options, penalty in (({}, 2.0), ({"length_penalty": -1.0}, -1.0)):
        for line in summarize_lines(own_search, bpe_tokenizer(), SOURCES, scores=True, **options):
            assert line.score == pytest.approx(sum(line.token_scores) / len(line.tokens) ** penalty)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 4}, "`min_new_tokens` must be at most 4, .* got the model's own 5. Give a smaller"),
        ({"min_new_tokens": 9}, "`min_new_tokens` must be at most 8, .* got 9. Give a smaller"),
        ({"min_new_tokens": 99, "max_new_tokens": 200}, "must be at most 63"),
        ({"num_beams": 0}, "`num_beams` must be >= 1, got 0"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be >= 1, got 0"),
        ({"no_repeat_ngram_size": -1}, "`no_repeat_ngram_size` must be >= 0, got -1"),
        ({"batch_size": 0}, "`batch_size` must be >= 1, got 0"),
        ({"too_long": "cut"}, "`too_long` must be 'error' or 'truncate', got 'cut'"),
    ],
)
@pytest.mark.parametrize("family", ["bart"])
def test_settings_that_cannot_be_are_refused_before_any_work(own_search, options, message):
    with pytest.raises(ValueError, match=message):
        summarize_texts(own_search, bpe_tokenizer(), [], **options)


def test_the_prefix_is_that_of_the_configuration():
    """T5 does several tasks."""
    tokens = {name: value for name, value in sized(bpe_tokenizer()).items() if name.endswith("token_id")}
    sizes = {"vocab_size": len(bpe_tokenizer()), "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    task = {"summarization": {"prefix": "das alte "}}
    torch.manual_seed(1)
    model = T5ForConditionalGeneration(T5Config(**tokens, **sizes, task_specific_params=task)).double()
    scatter(model)
    plain = summarize_texts(model, bpe_tokenizer(), SOURCES, prefix="", **SHORT)
    found = summarize_texts(model, bpe_tokenizer(), SOURCES, **SHORT)
    assert found != plain
    assert found == summarize_texts(
        model, bpe_tokenizer(), [f"das alte {text}" for text in SOURCES], prefix="", **SHORT
    )
    model.config.task_specific_params = "damaged"
    assert summarize_texts(model, bpe_tokenizer(), SOURCES, **SHORT) == plain


# ---- long texts, streams ----


@pytest.fixture
def narrow():
    """Tokenizer of a model that was trained to read eight tokens."""
    tokenizer = copy.deepcopy(bpe_tokenizer())
    tokenizer.model_max_length = 8
    return tokenizer


def test_a_long_text_is_truncated_with_its_length(narrow):
    model = text_model("marian", "ours")
    lengths = [len(ids) for ids in bpe_tokenizer()([*SOURCES, ""])["input_ids"]]
    found = summarize_lines(model, narrow, [*SOURCES, ""], **SHORT)
    assert [line.cut_from for line in found] == [length if length > 8 else None for length in lengths]
    assert any(line.cut_from for line in found)
    first = lengths.index(next(length for length in lengths if length > 8))
    with pytest.raises(LineTooLongError, match=rf"^line {first + 1} has {lengths[first]} tokens"):
        summarize_texts(model, narrow, SOURCES, too_long="error")


def test_unknown_words_that_are_written_are_counted():
    """Their place in the text is empty."""
    model, tokenizer = copying_model("marian", bias=-60.0)
    with torch.no_grad():
        model.final_logits_bias[:, tokenizer.unk_token_id] = 100.0
    options = {"num_beams": 1, "min_new_tokens": 3, "max_new_tokens": 3}
    found = summarize_lines(model, tokenizer, TEXTS[:3], scores=True, **options)
    assert [line.unknown for line in found] == [3, 3, 0]
    assert [line.text for line in found] == ["", "", ""]
    assert found[0].tokens == (tokenizer.unk_token,) * 3
