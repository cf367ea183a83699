"""Models of many languages through every job: tiny random ones, with the tokenizers that such models really have."""

import functools
import json

import pytest
import torch
from language_helpers import KINDS, PAIRS, save_multilingual
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_attncal import align, translate
from hf_attncal.commands import main
from hf_attncal.data.languages import Languages, card_languages, codes_of, set_languages, set_leading_code
from hf_attncal.data.word_tokens import token_names
from hf_attncal.data.words import NO_WORD
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import token_pairs
from hf_attncal.training import seq2seq

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, where it is not installed
# In a usual run a kind for each way: a code beside each text (slow and fast tokenizer), in front, two vocabularies.
REPEATED = ("mbart50", "mbart25")
LONG = ("nllb", "m2m100", "marian-codes")
every_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in REPEATED)) for kind in KINDS]
)
trainings = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in (*REPEATED, *LONG))) for kind in KINDS]
)
SOURCES, TARGETS = (list(side) for side in zip(*PAIRS[:4], strict=True))
QUICK = ["training.max_steps=2", "training.bf16=false", "data.held_out_pairs=6", "evaluation.max_new_tokens=8"]
QUICK += ["training.eval_strategy=steps", "training.eval_steps=1", "evaluation.dev_lines=2", "model.label_smoothing=0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    for side, name in enumerate(("source", "target")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def downloaded(place):
    return functools.cache(lambda kind: save_multilingual(kind, place / kind))


@pytest.fixture(scope="module")
def trained(place, downloaded):
    """kind -> the folder of a training, and the first forced token at each time that dev was translated."""

    @functools.cache
    def train(kind):
        folder, forced, write = place / f"{kind}-adapted", [], seq2seq.generate_lines

        def spy(model, *arguments, **options):
            settings = model.generation_config
            forced.append((settings.forced_bos_token_id, settings.decoder_start_token_id))
            return write(model, *arguments, **options)

        text = [f"--source={place / 'source'}", f"--target={place / 'target'}", f"--output={folder}"]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(seq2seq, "generate_lines", spy)
            assert main(["adapt", str(downloaded(kind)), *text, *languages_of(kind), *QUICK, "-q"]) == 0
        assert len(forced) >= 3  # each evaluation and the end
        return folder, set(forced)

    return train


def languages_of(kind):
    return [] if KINDS[kind][0] is None else ["--languages", KINDS[kind][0]]


def code_number(kind, folder):
    """The number of the target's code, if translations begin with it or their decoder starts with it."""
    if kind.startswith("marian"):
        return None
    return AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(KINDS[kind][2])


def translations(folder, **options):
    return translate(SOURCES, model=str(folder), format="json", scores=True, device="cpu", **options)


def as_upstream_says(kind, folder, beams):
    """Tokens of the target by the documented way of each model: its codes set by hand, and generate()."""
    code, tokenizer = KINDS[kind][1], AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    lines, options = SOURCES, {}
    if kind == "marian-codes":
        lines = [f">>{code}<< {line}" for line in lines]
    elif code is not None:
        tokenizer.src_lang = {"deu_Latn": "eng_Latn", "de": "en", "de_DE": "en_XX"}[code]
        field = "decoder_start_token_id" if kind == "mbart25" else "forced_bos_token_id"
        options = {field: tokenizer.convert_tokens_to_ids(KINDS[kind][2])}
    inputs = tokenizer(lines, return_tensors="pt", padding=True)
    with torch.no_grad():
        rows = model.generate(**inputs, **options, num_beams=beams, max_new_tokens=12, max_length=None)
    special = {model.generation_config.pad_token_id}
    return [[token for token in row[1:] if token not in special] for row in rows.tolist()]


# ---- every cell ----


@every_kind
def test_cell_a_target_that_is_not_set_is_refused(kind, downloaded, capsys):
    if KINDS[kind][0] is None:
        assert main(["translate", str(downloaded(kind)), "--languages=en-de"]) == 1
        assert "`languages` is for tokenizers with language codes; MarianTokenizer" in capsys.readouterr().err
        return
    with pytest.raises(ValueError, match=r"`languages` must name one of the \d+ languages .* --languages SOURCE-TAR"):
        translate(SOURCES, model=str(downloaded(kind)))


@every_kind
def test_cell_beams_begin_with_the_code(kind, downloaded):
    folder, beams = downloaded(kind), 3
    found = translations(folder, languages=KINDS[kind][0], beams=beams, generation=["max_new_tokens=12"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = as_upstream_says(kind, folder, beams)
    pad = tokenizer.pad_token if kind != "marian-two" else "<pad>"
    assert [[t for t in one.generated.tokens if t != pad] for one in found] == [
        token_names(tokenizer, row) for row in expected
    ]
    if code_number(kind, folder) is not None and kind != "mbart25":
        assert {one.generated.tokens[0] for one in found} == {KINDS[kind][2]}
        assert {one.generated.token_scores[0] for one in found} == {0.0}
    assert not any(token in one.text for one in found for token in codes_of(tokenizer).values())


@every_kind
def test_cell_attention_aligns_words_and_no_code(kind, downloaded):
    model, tokenizer = load_seq2seq(downloaded(kind), languages=KINDS[kind][0])
    pairs = token_pairs(model, tokenizer, SOURCES, TARGETS)
    code = KINDS[kind][2]
    for pair, source, target in zip(pairs, SOURCES, TARGETS, strict=True):
        for tokens, text, sided in ((pair.source, source, False), (pair.target, target, True)):
            names = token_names(tokenizer, tokens.ids, sided)
            of_none = [name for name, word in zip(names, tokens.word_ids, strict=True) if word == NO_WORD]
            behind = kind == "mbart25" or (kind == "marian-codes" and sided)
            codes = [] if code is None or (kind == "marian-codes" and sided) else [codes_of(tokenizer)]
            assert len(of_none) == len(codes) + 1  # the code and the end
            assert of_none[0 if behind else -1] == "</s>"
            assert set(tokens.word_ids) - {NO_WORD} <= set(range(len(text.split())))
        if code_number(kind, downloaded(kind)) is not None:
            assert token_names(tokenizer, pair.target.ids)[-1 if kind == "mbart25" else 0] == code
    found = align(str(downloaded(kind)), SOURCES, TARGETS, languages=KINDS[kind][0], device="cpu")
    for alignment, source, target in zip(found, SOURCES, TARGETS, strict=True):
        assert alignment.links
        assert all(i < len(source.split()) and j < len(target.split()) for i, j in alignment.links)


@trainings
def test_cell_dev_is_translated_into_the_target(kind, trained):
    """While it trains, and at the end."""
    folder, forced = trained(kind)
    number = code_number(kind, folder)
    if number is not None:
        assert {pair[kind == "mbart25"] for pair in forced} == {number}
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert sum("eval_bleu" in entry for entry in results["log_history"]) >= 2
    if KINDS[kind][0] is not None and (folder / "README.md").exists():  # not of stock models
        assert "language:\n- en\n- de\n" in (folder / "README.md").read_text(encoding="utf-8")


@trainings
def test_cell_what_is_saved_needs_no_language_again(kind, trained):
    folder, _ = trained(kind)
    model, tokenizer = load_seq2seq(folder)
    if KINDS[kind][1] is not None:
        assert getattr(tokenizer, "target_lang" if kind == "marian-codes" else "tgt_lang") == KINDS[kind][1]
    found = translations(folder, generation=["max_new_tokens=6"])
    if code_number(kind, folder) is not None and kind != "mbart25":
        assert {one.generated.tokens[0] for one in found} == {KINDS[kind][2]}
    assert model.generation_config.decoder_start_token_id == model.config.decoder_start_token_id
    assert len(align(str(folder), SOURCES, TARGETS, device="cpu")) == len(SOURCES)


# ---- names of languages ----


@pytest.mark.parametrize("languages", ["en-de", "eng-deu", "English-German", "eng_Latn-deu_Latn", ("en_XX", "de_DE")])
def test_a_language_has_many_names(languages, downloaded, caplog):
    for kind, source in (("nllb", "eng_Latn"), ("m2m100", "en")):
        tokenizer = AutoTokenizer.from_pretrained(downloaded(kind))
        set_languages(None, tokenizer, languages)
        assert (tokenizer.src_lang, tokenizer.tgt_lang) == (source, KINDS[kind][1])
    assert any("languages: " in line and "Tokenizer)" in line for line in caplog.messages)  # the choice is said


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ("de", "must be SOURCE-TARGET, such as en-de, got 'de'"),
        ("en-xx", "the target must be a language of M2M100Tokenizer, got 'xx'"),
        ("Klingon-de", "the source must be a language of M2M100Tokenizer, got 'Klingon'"),
        ("-", "must be SOURCE-TARGET"),
    ],
)
def test_a_language_that_the_tokenizer_does_not_have_is_named(languages, message, downloaded):
    tokenizer = AutoTokenizer.from_pretrained(downloaded("m2m100"))
    with pytest.raises(ValueError, match=message):
        set_languages(None, tokenizer, languages)
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("en", None)  # nothing has changed


def test_a_side_may_have_a_hyphen(downloaded):
    tokenizer = AutoTokenizer.from_pretrained(downloaded("nllb"))
    for languages, expected in (
        ("pt-BR-en", Languages("por_Latn", "eng_Latn")),
        ("en-zh-Hant", Languages("eng_Latn", "zho_Hant")),
    ):
        set_languages(None, tokenizer, languages)
        assert (tokenizer.src_lang, tokenizer.tgt_lang) == expected
    assert card_languages("pt-BR-en") == ["pt", "en"]
    assert card_languages("eng_Latn-deu_Latn") == ["en", "de"]


def test_a_code_that_the_model_is_made_to_begin_with_is_the_target(downloaded, tmp_path):
    folder = downloaded("m2m100")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    model.generation_config.forced_bos_token_id = tokenizer.get_lang_id("fr")
    set_languages(model, tokenizer)
    assert tokenizer.tgt_lang == "fr"
    set_languages(model, tokenizer, "en-de")  # what the user says goes before
    assert model.generation_config.forced_bos_token_id == tokenizer.get_lang_id("de")


# ---- a code in front of the source ----


def test_a_line_may_begin_with_its_own_code(downloaded):
    """Which goes before the one that is set, and is no word of links."""
    folder = str(downloaded("marian-codes"))
    options = {"generation": ["max_new_tokens=6"], "device": "cpu"}
    coded = [f">>{code}<< {line}" for code, line in zip(("deu", "fra", "fra", "deu"), SOURCES, strict=True)]
    with_codes = translate(coded, model=folder, format="json", alignments=True, **options)
    for code, numbers in (("deu", (0, 3)), ("fra", (1, 2))):
        alone = translate(SOURCES, model=folder, languages=f"en-{code}", format="json", alignments=True, **options)
        for n in numbers:
            assert with_codes[n].text == alone[n].text
            assert with_codes[n].alignment.links == alone[n].alignment.links
            assert with_codes[n].source == coded[n]
    assert translate(coded, model=folder, languages="en-fra", **options) == [one.text for one in with_codes]


def test_a_text_that_has_one_code_is_read_without_it(downloaded):
    """An analysis, which removes words, needs this."""
    tokenizer = AutoTokenizer.from_pretrained(downloaded("marian-codes"))
    assert set_leading_code(tokenizer, SOURCES) == SOURCES
    mixed = [f">>{code}<< {line}" for code, line in zip(("deu", "fra", "fra", "deu"), SOURCES, strict=True)]
    assert set_leading_code(tokenizer, mixed) == mixed
    assert tokenizer.target_lang == "mul"
    assert set_leading_code(tokenizer, [*(f">>fra<< {line}" for line in SOURCES), ""]) == [*SOURCES, ""]
    assert tokenizer.target_lang == "fra"


def test_a_line_without_a_code_is_named(downloaded, capsys, monkeypatch, tmp_path):
    (tmp_path / "text").write_text(f">>deu<< {SOURCES[0]}\n{SOURCES[1]}\n", encoding="utf-8")
    command = ["translate", str(downloaded("marian-codes")), f"--source={tmp_path / 'text'}", "max_new_tokens=4"]
    assert main(command) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 1
    assert "line 2 of" in told.err
    assert "Begin the line with its code, such as >>deu<<" in told.err
