"""`attncal summarize`: one line for each text, what is copied, which texts were cut, and what is refused."""

import copy
import json
from types import SimpleNamespace

import pytest
from seq2seq_helpers import SOURCES, bpe_tokenizer, text_model
from summary_helpers import TEXTS, UNKNOWN, copying_model

from hf_attncal.data.pharaoh import parse_hypotheses
from hf_attncal.inference.summarization import summarize_lines, summarize_texts

LINES = [*SOURCES[:4], "", "  ", *SOURCES[4:]]
SHORT = ("--device", "cpu", "max_new_tokens=8", "--batch-size", "3")


def text_of(lines) -> str:
    return "".join(f"{line}\n" for line in lines)


def saved(folder, model, tokenizer) -> SimpleNamespace:
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return SimpleNamespace(folder=str(folder), model=model, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def summarizer(tmp_path_factory):
    """Stock BART with settings of the search, trained to read twelve tokens."""
    model, tokenizer = copy.deepcopy(text_model("bart", "stock")).eval(), copy.deepcopy(bpe_tokenizer())
    model.final_logits_bias[0, tokenizer.eos_token_id] = 4
    search = {"num_beams": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2, "min_length": 4, "max_length": 9}
    model.generation_config.update(**search, early_stopping=True)
    tokenizer.model_max_length = 12
    return saved(tmp_path_factory.mktemp("summarizer"), model, tokenizer)


@pytest.fixture(scope="module")
def copier(tmp_path_factory):
    """A model of ours that copies everything, unknown words too."""
    return saved(tmp_path_factory.mktemp("copier"), *copying_model("marian", bias=30.0))


# ---- summaries ----


def test_one_line_for_each_text(attncal, summarizer):
    expected = summarize_texts(summarizer.model, summarizer.tokenizer, LINES)
    assert len(set(expected)) > 4
    status, out, _ = attncal("summarize", summarizer.folder, "--device", "cpu", text=text_of(LINES))
    assert (status, out) == (0, text_of(expected))
    assert [bool(line.strip()) for line in LINES] == [bool(line) for line in expected]


@pytest.mark.parametrize("form", ["text", "marked"])
def test_scores_stand_before_the_summary(attncal, copier, form):
    status, out, err = attncal("summarize", copier.folder, *SHORT, "--scores", "--format", form, text=text_of(TEXTS))
    assert (status, err) == (0, "")
    found = summarize_lines(copier.model, copier.tokenizer, TEXTS, scores=True, max_new_tokens=8)
    for line, expected in zip(out.split("\n")[:-1], found, strict=True):
        score, _ = line.split("\t")
        assert score == ("" if expected.score is None else f"{expected.score:.4f}")


# ---- copied ----


def test_links_of_copied_words_follow_the_summary(attncal, copier):
    status, out, err = attncal("summarize", copier.folder, *SHORT, "--format", "copied", text=text_of(TEXTS))
    assert (status, err) == (0, "")
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert [summary for summary, _ in rows] == summarize_texts(copier.model, copier.tokenizer, TEXTS, max_new_tokens=8)
    assert rows[TEXTS.index("")] == ["", ""]
    for text, (summary, _), links in zip(TEXTS, rows, parse_hypotheses([links for _, links in rows]), strict=True):
        words, written = text.split(), summary.split()
        assert {j for _, j in links} == set(range(len(written)))
        assert all(words[i] == written[j] for i, j in links)
    assert any(set(summary.split()) & UNKNOWN for summary, _ in rows)


def test_copied_words_are_marked_for_a_reader(attncal, copier):
    found = summarize_lines(copier.model, copier.tokenizer, TEXTS, copied=True, max_new_tokens=8)
    expected = []
    for line in found:
        sources = {j: i for i, j in line.links}
        expected.append(" ".join(f"[{word}]{sources[j]}" for j, word in enumerate(line.text.split())))
    command = ("summarize", copier.folder, *SHORT, "--format", "marked")
    assert attncal(*command, text=text_of(TEXTS)) == (0, text_of(expected), "")


@pytest.mark.parametrize("copied", [True, False])
def test_json_is_one_object_a_line(attncal, copier, summarizer, copied):
    """Only objects of a model that copies have the copied words."""
    maker, texts = (copier, TEXTS) if copied else (summarizer, LINES)
    status, out, err = attncal("summarize", maker.folder, *SHORT, "--format", "json", text=text_of(texts))
    assert (status, bool(err)) == (0, not copied)  # of lines that are cut
    rows = [json.loads(line) for line in out.split("\n")[:-1]]
    fields = ["source", "summary", "score", "tokens", "token_scores", "cut_from"]
    more = ["links", "copied_shares", "source_tokens", "source_words", "summary_words"] if copied else []
    found = summarize_lines(maker.model, maker.tokenizer, texts, scores=True, copied=copied, max_new_tokens=8)
    for text, row, expected in zip(texts, rows, found, strict=True):
        assert list(row) == fields + more
        assert (row["source"], row["summary"], row["tokens"]) == (text, expected.text, list(expected.tokens))
        assert row["score"] == (None if expected.score is None else pytest.approx(expected.score, abs=1e-6))
        assert row["token_scores"] == pytest.approx(expected.token_scores, abs=1e-6)
        assert row["cut_from"] == expected.cut_from
        if copied:
            assert row["links"] == [list(link) for link in expected.links]
            columns = zip(*(row[name] for name in more[1:]), expected.copies, strict=True)
            for share, token, word, into, one in columns:
                assert share == pytest.approx(one.share, abs=1e-6)
                assert (token, word, into) == (one.source_token, one.source_word, one.word)


# ---- long texts ----


def told(numbers: str, count: int, of: int, longest: int = 100_000) -> str:
    return (
        f"attncal: warning: {count} of {of} lines of the input were truncated: only the first 12 tokens of at most "
        f"{longest} bytes were summarised (line{'s' if count > 1 else ''} {numbers}).\n"
    )


def test_the_beginning_of_a_long_text_is_summarised_with_a_warning(attncal, summarizer):
    texts = [f"{SOURCES[0]} {SOURCES[1]}" if n in (2, 50, 51) else "das alte" for n in range(1, 61)]
    command = ("summarize", summarizer.folder, "--device", "cpu", "--batch-size", "2")
    status, out, err = attncal(*command, text=text_of(texts))
    assert (status, out.count("\n"), err) == (0, 60, told("2, 50, 51", 3, 60))
    assert out == text_of(summarize_texts(summarizer.model, summarizer.tokenizer, texts))
    assert attncal(*command, "-q", text=text_of(texts)) == (0, out, "")
    assert attncal(*command, text=text_of(texts[:2]))[2] == told("2", 1, 2)
    many = text_of(texts[1:2] * 12)
    assert attncal(*command, text=many)[2] == told("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...", 12, 12)
    status, found, err = attncal(*command, "--too-long", "error", text=text_of(texts))
    assert (status, found) == (1, text_of(out.split("\n")[:1]))
    assert "line 2 of the input has" in err
    assert "tokens, the model takes at most 12. Split the line, or pass --too-long truncate." in err
    assert err.count("\n") == 1
    _, out, _ = attncal(*command, "--format", "json", text=text_of(texts))
    lengths = [json.loads(line)["cut_from"] for line in out.split("\n")[:-1]]
    assert {n for n, length in enumerate(lengths, start=1) if length} == {2, 50, 51}
    assert lengths[1] == len(bpe_tokenizer()(texts[1])["input_ids"])


# ---- errors ----


@pytest.mark.parametrize("options", ["--format=copied", "--format=marked"])
def test_copies_need_a_model_that_copies(attncal, summarizer, options):
    status, out, err = attncal("summarize", summarizer.folder, "--device", "cpu", *options.split(), text="das\n")
    assert (status, out) == (1, "")
    assert f"{summarizer.folder} copies nothing. Give --format text or json" in err
    assert "--model summarizer+copy" in err
    assert err.count("\n") == 1


def test_contradictory_lengths_are_reported_before_any_line(attncal, summarizer):
    status, out, err = attncal("summarize", summarizer.folder, "--device", "cpu", "max_new_tokens=2", text="das\n")
    assert (status, out) == (1, "")
    assert "`min_new_tokens` must be at most 2, the longest summary allowed, got the model's own 3." in err
