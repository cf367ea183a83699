"""The functions of the commands from Python: over lists and files, with the result that the command writes."""

import copy
import inspect
import re
from dataclasses import astuple
from pkgutil import resolve_name

import pytest
from aligner_helpers import counting_aligner
from seq2seq_helpers import SOURCES, bpe_tokenizer, text_model

import hf_attncal
from hf_attncal.checking import Checker
from hf_attncal.command_table import COMMANDS
from hf_attncal.commands.guarded import choices_of
from hf_attncal.io.errors import CommandError

SOURCE, TARGET, LINKS = ["the old house", "the cat"], ["das alte Haus", "die Katze"], ["0-0 1-1 2-2", "0-0 1-1"]


@pytest.fixture
def files(tmp_path):
    """The paths of the texts above."""
    for name, lines in {"source": SOURCE, "target": TARGET, "links": LINKS}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: tmp_path / name for name in ("source", "target", "links")}


def options(files) -> list[str]:
    return [word for name, path in files.items() for word in (f"--{name}", str(path))]


def test_lexicon(attncal, files, tmp_path):
    entries = hf_attncal.lexicon(SOURCE, TARGET, links=LINKS)
    assert [astuple(entry) for entry in entries[-2:]] == [("the", "das", 1, 0.5, 1.0), ("the", "die", 1, 0.5, 1.0)]
    assert hf_attncal.lexicon(**files) == entries
    assert hf_attncal.lexicon(files["source"], TARGET, links=[[(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 1)]]) == entries
    assert hf_attncal.lexicon(SOURCE, TARGET, links=LINKS, output=tmp_path / "lexicon") is None
    assert attncal("align", "lexicon", *options(files))[1] == (tmp_path / "lexicon").read_text(encoding="utf-8")


def test_project(attncal, files, tmp_path):
    tags = ["DET ADJ NOUN", "DET NOUN"]
    (tmp_path / "tags").write_text("\n".join(tags), encoding="utf-8")
    lines = hf_attncal.project(SOURCE, TARGET, links=LINKS, tags=tags)
    assert [line.text for line in lines] == ["DET ADJ NOUN", "DET NOUN"]
    assert hf_attncal.project(**files, tags=tmp_path / "tags") == lines
    written = attncal("align", "project", *options(files), "--tags", str(tmp_path / "tags"))[1]
    assert "".join(f"{line.text}\n" for line in lines) == written
    with pytest.raises(ValueError, match="line 2 of tags: 1 tags for 2 source words"):
        hf_attncal.project(SOURCE, TARGET, links=LINKS, tags=["D A N", "D"])


def test_compare(attncal, files, tmp_path):
    (tmp_path / "other").write_text("0-0 2-2\n0-0\n", encoding="utf-8")
    compared = hf_attncal.compare(LINKS, tmp_path / "other", source=SOURCE, target=files["target"])
    assert list(compared.rows) == ["hypothesis 1", str(tmp_path / "other")]
    second = compared.rows[str(tmp_path / "other")]
    assert (second.links, second.agreement, second.source_linked) == (3, 2 * 3 / 8, 3 / 5)
    command = ["align", "compare", str(files["links"]), str(tmp_path / "other")]
    written = attncal(*command, "--source", str(files["source"]), "--target", str(files["target"]))[1]
    shown = hf_attncal.compare(files["links"], tmp_path / "other", source=SOURCE, target=TARGET)
    assert f"{shown}\n" == written
    assert shown.rows[str(tmp_path / "other")] == second


def test_align_quick(attncal, files, tmp_path):
    pairs = list(zip(SOURCE, TARGET, strict=True))
    found = hf_attncal.align_quick(pairs)
    assert [len(one.source) for one in found] == [3, 2]
    assert hf_attncal.align_quick(source=files["source"], target=TARGET) == found
    assert hf_attncal.align_quick(source=[" ||| ".join(pair) for pair in pairs]) == found
    assert hf_attncal.align_quick([tuple(side.split() for side in pair) for pair in pairs]) == found
    assert hf_attncal.align_quick(pairs, output=tmp_path / "quick", scores=True) is None
    given = ["--source", str(files["source"]), "--target", str(files["target"]), "--scores"]
    written = attncal("align", "quick", *given)[1]
    assert written == (tmp_path / "quick").read_text(encoding="utf-8")
    assert written == "".join(f"{one.pharaoh(scores=True)}\n" for one in found)
    with pytest.raises(ValueError, match="--source and --target go together"):
        hf_attncal.align_quick()
    with pytest.raises(ValueError, match="source has 2 lines, target has 1"):
        hf_attncal.align_quick(source=SOURCE, target=TARGET[:1])


def test_align(attncal, files, tmp_path):
    pairs = list(zip(SOURCE, TARGET, strict=True))
    aligner = counting_aligner(pairs * 3)
    aligner.model.save_pretrained(tmp_path / "model")
    aligner.tokenizer.save_pretrained(tmp_path / "model")
    found = hf_attncal.align(aligner, pairs)
    assert found == aligner.align(pairs)
    assert hf_attncal.align(tmp_path / "model", SOURCE, TARGET) == found
    assert hf_attncal.align(tmp_path / "model", source=files["source"], target=files["target"]) == found
    assert hf_attncal.align(aligner, zip(SOURCE, TARGET, strict=True), offsets=True)[0].source_spans[0] == (0, 3)
    text = ["--source", str(files["source"]), "--target", str(files["target"])]
    written = attncal("align", "run", str(tmp_path / "model"), *text, "--format", "json")[1]
    assert hf_attncal.align(aligner, pairs, output=tmp_path / "links", format="json") is None
    assert (tmp_path / "links").read_text(encoding="utf-8") == written
    with pytest.raises(ValueError, match="--source and --target go together"):
        hf_attncal.align(aligner)
    with pytest.raises(ValueError, match="`layer` is for an encoder-decoder"):
        hf_attncal.align(aligner, pairs, read={"layer": 1})


def test_score(attncal, files, tmp_path):
    gold, other = ["0-0 1-1 2p2", "0-0 1-1"], ["0-0 1-1 2-2", "0-1"]
    for name, lines in {"gold": gold, "other": other}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    first, second = hf_attncal.score(gold, files["links"], other, source=SOURCE, target=TARGET, bootstrap=0).rows
    assert (first.hypothesis, first.aer, first.recall) == (str(files["links"]), 0, 1)
    assert (second.hypothesis, second.aer) == ("hypothesis 2", pytest.approx(1 - (2 + 3) / (4 + 4)))
    names = [str(tmp_path / "gold"), str(files["links"]), str(tmp_path / "other")]
    assert f"{hf_attncal.score(*names)}\n" == attncal("score", *names)[1]
    with pytest.raises(ValueError, match="--source and --target belong together"):
        hf_attncal.score(gold, other, source=SOURCE)


def test_score_of_summaries(attncal, tmp_path):
    pytest.importorskip("rouge_score")
    texts = {
        "one": ["oil falls", "the bank cuts rates"],
        "two": ["oil prices fall", "rates cut"],
        "hyp": ["oil", "rates"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    one, two, hyp = texts.values()
    (row,) = hf_attncal.score(one, hyp, metric="rouge", references=[two], bootstrap=0).rows
    assert row.rouge1 > hf_attncal.score(one, hyp, metric="rouge", bootstrap=0).rows[0].rouge1
    command = ["score", "--metric=rouge", *(str(tmp_path / name) for name in ("one", "hyp"))]
    found = hf_attncal.score(tmp_path / "one", tmp_path / "hyp", metric="rouge", references=[tmp_path / "two"])
    assert f"{found}\n" == attncal(*command, "--references", str(tmp_path / "two"))[1]
    assert found.rows[0].rouge1 == row.rouge1


# ---- what a model writes ----


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """The folder of a random model, of whose texts some end, and the model with its tokenizer."""
    folder, tokenizer = tmp_path_factory.mktemp("writer"), bpe_tokenizer()
    model = copy.deepcopy(text_model("bart", "ours")).eval()
    model.final_logits_bias[0, tokenizer.eos_token_id] = 4
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder), (model, tokenizer)


def written(attncal, command, model, *words) -> list[str]:
    status, out, err = attncal(
        command, model, "--device", "cpu", *words, text="".join(f"{line}\n" for line in SOURCES)
    )
    assert (status, err) == (0, "")
    return out.splitlines()


def test_translate(attncal, writer, tmp_path):
    folder, loaded = writer
    settings = {"max_new_tokens": 8, "length_penalty": 0.5, "repetition_penalty": 1.5}
    words = [f"{name}={value}" for name, value in settings.items()]
    running = hf_attncal.Running(device="cpu")
    texts = hf_attncal.translate(folder, SOURCES, beams=2, generation=settings, running=running)
    assert texts == written(attncal, "translate", folder, "--beams", "2", *words)
    assert texts == hf_attncal.translate(loaded, SOURCES, beams=2, generation=words)
    assert texts != hf_attncal.translate(loaded, SOURCES, beams=2, generation={"max_new_tokens": 8})
    answers = hf_attncal.translate(loaded, SOURCES, beams=2, generation=settings, format="json", alignments=True)
    assert [answer.text for answer in answers] == texts
    links = [answer.alignment.pharaoh() for answer in answers]
    output, beside = tmp_path / "translations", tmp_path / "links"
    more = {"output": output, "alignments": beside, "running": running}
    assert hf_attncal.translate(folder, SOURCES, beams=2, generation=settings, **more) is None
    assert (output.read_text().splitlines(), beside.read_text().splitlines()) == (texts, links)


def test_summarize(attncal, writer):
    folder, loaded = writer
    settings = {"max_new_tokens": 8, "no_repeat_ngram_size": 2, "prefix": "das "}
    words = [f"{name}={value}" for name, value in settings.items()]
    lines = hf_attncal.summarize(loaded, SOURCES, scores=True, generation=settings)
    assert lines == written(attncal, "summarize", folder, "--scores", *words)
    answers = hf_attncal.summarize(loaded, SOURCES, format="json", generation=settings)
    assert [f"{answer.score:.4f}\t{answer.text}" for answer in answers] == lines
    assert [answer.source for answer in answers] == SOURCES


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"lenght_penalty": 1}, "`lenght_penalty` is no setting of the search: did you mean `length_penalty`?"),
        ({"num_beams": 3}, "`num_beams` is no setting of the search: give the number of beams with --beams."),
        (["max_new_tokens=3", "max_new_tokens=4"], "`max_new_tokens` is given twice. Leave one out."),
        (["early_stopping=always"], "`early_stopping` must be true, false or \"never\", got 'always'."),
        ({"suppress_tokens": 3}, "`suppress_tokens` must be a list of numbers, got '3'."),
        ({"temperature": 0.7}, "`temperature` is for sampling. Add `do_sample=true`, or leave it out."),
        ({"forced_bos_token_id": 10**6}, "the model cannot be used with these options: "),
    ],
)
def test_an_impossible_setting_is_reported(writer, settings, told):
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        hf_attncal.translate(writer[1], SOURCES, generation=settings)


def test_the_text_may_come_first_and_how_it_runs_by_name(writer):
    folder = writer[0]
    lines = hf_attncal.translate(folder, SOURCES)
    assert hf_attncal.translate(SOURCES, model=folder, device="cpu", batch_size=16) == lines
    assert all(isinstance(line, str) for line in lines)
    running = hf_attncal.Running(batch_size=16)
    assert hf_attncal.translate(SOURCES, model=folder, running=running, threads=1) == lines
    with pytest.raises(ValueError, match="--threads must be from 1 to 1024, got 0"):
        hf_attncal.translate(SOURCES, model=folder, threads=0)
    with pytest.raises(TypeError, match="devise"):
        hf_attncal.translate(SOURCES, model=folder, devise="cpu")


def test_a_text_that_is_missing_or_no_lines(writer):
    with pytest.raises(ValueError, match="`source` must be a file or its lines, got None"):
        hf_attncal.translate(writer[1])
    with pytest.raises(ValueError, match=r"line 2 must be text without a line end, got 'b\\nc'"):
        hf_attncal.translate(writer[1], ["a", "b\nc"])


# ---- check ----


def test_check(attncal, trained, monkeypatch):
    monkeypatch.chdir(trained)
    sources, targets = ((trained / name).read_text().splitlines()[:20] for name in ("dev.en", "dev.de"))
    targets[3] = ""
    learned = hf_attncal.check_learn("aligner", source="train.en", target=["train.de"])
    assert str(learned) == "wrote aligner/check.json, learned from 800 pairs"
    verdicts = hf_attncal.check("aligner", sources, targets)
    assert [(verdict.line, verdict.source) for verdict in verdicts] == list(enumerate(sources, start=1))
    assert "empty target" in verdicts[3].names
    assert [verdict.line for verdict in hf_attncal.check("aligner", sources, targets, worst=1)] == [4]
    checker = Checker.from_pretrained("aligner")
    for name, lines in {"some.en": sources, "some.de": targets}.items():
        (trained / name).write_text("".join(f"{line}\n" for line in lines))
    assert hf_attncal.check(checker, "some.en", trained / "some.de") == verdicts
    assert hf_attncal.check(checker.aligner, sources, targets, format="kept") == [
        verdict for verdict in verdicts if not verdict.flagged
    ]
    pair = ("--source", "some.en", "--target", "some.de")
    summary = hf_attncal.check(checker, "some.en", "some.de", format="summary")
    assert (summary.lines, f"{summary}\n") == (20, attncal("check", "aligner", *pair, "--format", "summary")[1])
    compared = hf_attncal.check_compare(checker, source="some.en", target="some.de", other=trained / "some.de")
    assert set(compared.p_values.values()) == {1.0}
    assert f"{compared}\n" == attncal("check", "compare", "aligner", *pair, "--other", str(trained / "some.de"))[1]
    tested = hf_attncal.check_test(checker, source="dev.en", target="dev.de")
    assert f"{tested}\n" == attncal("check", "test", "aligner", "--source", "dev.en", "--target", "dev.de")[1]


# ---- all commands ----

CHOICES = [
    (function, name, values)
    for function in map(resolve_name, COMMANDS.values())
    for name, parameter in inspect.signature(function).parameters.items()
    if (values := choices_of(parameter.annotation))
]


@pytest.mark.parametrize(
    ("function", "name", "values"), CHOICES, ids=[f"{f.__name__}-{name}" for f, name, _ in CHOICES]
)
def test_a_value_that_is_no_choice_is_refused_before_anything_is_read(function, name, values):
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    given = ["nowhere" for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name: "nowhere" for p in needed if p.kind is p.KEYWORD_ONLY} | {name: "jsn"}
    with pytest.raises(CommandError, match=rf"`{name}` must be {values[0]}.*got jsn"):
        getattr(hf_attncal, function.__name__)(*given, **named)
