"""`attncal align project`, `lexicon` and `calibrate`: files in, lines out, and what is wrong with files."""

import re
import shlex
from pathlib import Path

import pytest
from english_german import generate_split, write_pairs

import hf_attncal
from hf_attncal.alignment import Gold, WordAligner, calibrate_links, count_links, project_labels
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.alignment.probabilities import PROBABILITIES_FILE
from hf_attncal.commands import main
from hf_attncal.data.pharaoh import format_links

FILES = {
    "source": "the old house .\n\nthe new cat\n",
    "target": "la vieille maison .\n\nle chat\n",
    "marked": "<b>the old</b> house .\n\nthe <i>new</i> cat\n",
    "links": "0-0 1-1 2-2 3-3\n\n0-0 2-1\n",
    "tags": "D A N P\n\nD A N\n",
    "spans": "O B-X I-X O\n\nO B-Y I-Z\n",
}
TEXT = ["--source", "source", "--target", "target", "--links", "links"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with an aligner that counts, and annotated pairs it has not seen."""
    folder = tmp_path_factory.mktemp("trained")
    split = generate_split(400, 60, 0, seed=2)
    write_pairs(split.train, folder / "train.en", folder / "train.de")
    write_pairs(split.valid, folder / "dev.en", folder / "dev.de")
    links = "".join(f"{format_links(pair.links)}\n" for pair in split.valid)
    (folder / "dev.links").write_text(links, encoding="utf-8")
    train = {"source": str(folder / "train.en"), "target": str(folder / "train.de")}
    settings = {"preset": "hmm", "data": {"train": train}, "training": {"output_dir": str(folder / "aligner")}}
    AlignerJob.train(AlignerConfig.make(settings | {"tokenizer": {"vocab_size": 300}}))
    return folder


# ---- project ----


def test_tags(attncal, here):
    assert attncal("align", "project", *TEXT, "--tags", "tags") == (0, "D A N P\n\nD N\n", "")
    (here / "links").write_text("0-0 2-2\n\n0-0\n")
    assert attncal("align", "project", *TEXT, "--tags", "tags")[1] == "D _ N _\n\nD _\n"


def test_spans(attncal, here):
    status, out, err = attncal("align", "project", *TEXT, "--spans", "spans")
    assert (status, out) == (0, "O B-X I-X O\n\nO B-Z\n")
    assert (
        err == "attncal: warning: spans without a linked word, which are not in the output: 1, the first in line 3.\n"
    )


def test_markup(attncal, here):
    given = ["--source", "marked", *TEXT[2:], "--markup"]
    status, out, err = attncal("align", "project", *given, "--output", "out")
    assert (status, out) == (0, "")
    assert Path("out").read_text() == "<b>la vieille</b> maison .\n\nle <i></i>chat\n"
    assert "elements without a linked word, which are empty in the output: 1, the first in line 3." in err


def test_tags_inside_words_are_counted(attncal, here):
    (here / "marked").write_text("the <b>old</b> house .\n\nthe new <i>cat</i>.\n")
    _, out, err = attncal("align", "project", "--source", "marked", *TEXT[2:], "--markup")
    assert out.splitlines()[2] == "le <i>chat</i>"
    assert (
        "tags inside a word (of text that is not tokenised), which were moved to its edge: 1, the first in line 3."
        in err
    )


def test_links_of_an_aligner_come_from_a_file_or_a_pipe(attncal, trained, here):
    text = ["--source", str(trained / "dev.en"), "--target", str(trained / "dev.de")]
    run = ["align", "run", str(trained / "aligner"), *text]
    _, links, _ = attncal(*run)
    assert attncal(*run, "--output", "found")[0] == 0
    entries = attncal("align", "lexicon", *text, "--links", "found")
    assert entries[0] == 0
    assert entries[1].count("\n") > 50
    assert attncal("align", "lexicon", *text, "--links", "-", text=links) == entries
    status, out, err = attncal("align", "lexicon", *text, "--links", str(trained / "aligner"))
    assert (status, out) == (1, "")
    assert f"--links must be a file of links, got the folder {trained / 'aligner'}" in err


@pytest.mark.parametrize(
    ("changed", "arguments", "told", "done"),
    [
        ({"tags": "D A N P\n\nD A\n"}, "--tags tags", "line 3 of tags: 2 tags for 3 source words", 2),
        ({"spans": "O O O O\n\nD A N\n"}, "--spans spans", "line 3 of spans: a tag must be `O`, `B-TYPE`", 2),
        (
            {"links": "0-0\n\n3-0\n"},
            "--tags tags",
            "line 3 of links: link 3-0 lies outside a pair of 3 source and 2",
            2,
        ),
        ({"links": "0-0\n0-0\n\n"}, "--tags tags", "line 2 of links: link 0-0 lies outside a pair of 0 source", 1),
        ({"links": "0-0\n\n0_0\n"}, "--tags tags", "line 3 of links: '0_0' is not a link", 2),
        ({"links": "0-0\n\n0p0\n"}, "--tags tags", "line 3 of links: '0p0' is a possible link", 2),
        ({"links": "0-0\n\n0-0:7\n"}, "--tags tags", "line 3 of links: 0-0:7 has a score outside 0 to 1", 2),
        ({"links": "0-0\n"}, "--tags tags", "source has 3 lines, links has 1", 1),
        ({"tags": "D A N P\n"}, "--tags tags", "source has 3 lines, tags has 1", 1),
        ({"target": "a b c d\n\nd e\nf\n"}, "--tags tags", "source has 3 lines, target has 4", 3),
        ({"source": "a b c d\n\n<b>c\n"}, "--markup", "line 3 of source: '<b>' has no end tag", 2),
        (
            {"source": "a b c d\n\n</b>c\n", "links": "0-0\n\n9-9\n"},
            "--markup",
            "line 3 of source: '</b>' does not end",
            2,
        ),
        ({}, "--tags tags --output tags", "--output .*tags would overwrite tags", 0),
    ],
)
def test_errors_name_file_and_line(changed, arguments, told, done, attncal, here):
    for name, text in changed.items():
        (here / name).write_text(text)
    status, out, err = attncal("align", "project", *TEXT, *shlex.split(arguments))
    assert status == 1
    assert re.fullmatch(rf"attncal: error: .*{told}.*\n", err), err
    assert out.count("\n") == done


def test_links_must_be_given(capsys):
    with pytest.raises(SystemExit) as raised:
        main(["align", "lexicon", *TEXT[:4]])
    assert (raised.value.code, "--links must be given" in capsys.readouterr().err) == (2, True)


# ---- the same from Python ----


@pytest.mark.parametrize("as_stream", [False, True])
def test_project_and_lexicon_from_python_with_an_aligner(as_stream, attncal, trained, here):
    aligner = WordAligner.from_pretrained(trained / "aligner", device="cpu")
    text = [(trained / name).read_text().splitlines() for name in ("dev.en", "dev.de")]
    files = ["--source", str(trained / "dev.en"), "--target", str(trained / "dev.de")]
    assert attncal("align", "run", str(trained / "aligner"), *files, "--scores", "--output", "found")[0] == 0
    files += ["--links", "found"]
    pairs = list(zip(*text, strict=True))
    links = aligner.stream(pairs) if as_stream else aligner.align(pairs)
    found = project_labels(iter(pairs) if as_stream else pairs, links, tags=text[0])
    tags = ["--tags", str(trained / "dev.en")]
    assert [line.text for line in found] == attncal("align", "project", *files, *tags)[1].splitlines()
    entries = count_links(pairs, aligner.stream(pairs), lowercase=True, least_count=2, top=3)
    more = ["--lowercase", "--least-count", "2", "--top", "3"]
    written = attncal("align", "lexicon", *files, *more)[1].splitlines()[1:]
    assert len(written) > 10
    assert [f"{one.source}\t{one.target}\t{one.count}" for one in entries] == [
        line.rpartition("\t")[0].rpartition("\t")[0] for line in written
    ]
    alignments = aligner.align(pairs)
    assert list(count_links(pairs, alignments)) == list(count_links(pairs, [one.links for one in alignments]))


@pytest.mark.slow
def test_calibrate_from_python_writes_what_the_command_writes(attncal, trained, here):
    names = [str(trained / name) for name in ("dev.en", "dev.de", "dev.links")]
    aligner = WordAligner.from_pretrained(trained / "aligner", device="cpu")
    path = calibrate_links(aligner, Gold.read(*names)).save(here, trained / "aligner")
    command = ["--source", names[0], "--target", names[1], "--gold", names[2], "--output", "new"]
    status, out, _ = attncal("align", "calibrate", str(trained / "aligner"), *command)
    assert status == 0
    assert path.read_bytes() == Path("new", PROBABILITIES_FILE).read_bytes()
    source, target, gold = (Path(name).read_text().splitlines() for name in names)
    found = hf_attncal.calibrate(trained / "aligner", source, target, gold=gold, output="lines")
    assert found.path.read_bytes() == path.read_bytes()
    assert out == f"{found}\n".replace("wrote lines", "wrote new")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "Give one of `tags`, `spans` and `markup`."),
        ({"tags": ["D"], "markup": True}, "Give one of"),
        ({"tags": []}, "`tags` must have one line per pair, got only 0"),
        ({"tags": ["D", "D"]}, "`pairs` must have one line per pair, got only 1"),
        ({"tags": ["D N"]}, "line 1 of `tags`: 2 tags for 1 source words"),
    ],
)
def test_refusals_of_project_have_their_own_messages(wrong, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        list(project_labels([("a", "b")], ["0-0"], **wrong))


# ---- lexicon ----


def test_lexicon(attncal, here):
    status, out, err = attncal("align", "lexicon", *TEXT)
    assert (status, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0] == ["source", "target", "count", "p(target|source)", "p(source|target)"]
    assert rows[-1] == ["the", "le", "1", "0.500000", "1.000000"]
    assert len(rows) == 1 + 6
    assert attncal("align", "lexicon", *TEXT, "--top", "1", "--output", "found")[0] == 0
    assert Path("found").read_text().splitlines()[-1].split("\t")[1] == "la"


def test_options_of_the_lexicon(attncal, here):
    (here / "source").write_text("The cat the dog\n")
    (here / "target").write_text("le chat le chien\n")
    (here / "links").write_text("0-0 1-1 2-2 3-3\n")

    def words(*more: str) -> list[list[str]]:
        return [line.split("\t")[:3] for line in attncal("align", "lexicon", *TEXT, *more)[1].splitlines()[1:]]

    assert words("--lowercase", "--least-count", "2") == [["the", "le", "2"]]


@pytest.mark.parametrize(
    ("given", "told"), [([], "none of them"), (["--tags", "tags", "--markup"], "--tags and --markup")]
)
def test_one_kind_of_labels_is_carried(given, told, attncal, here):
    status, out, err = attncal("align", "project", *TEXT, *given)
    assert (status, out) == (1, "")
    assert err == f"attncal: error: Give one of --tags, --spans and --markup, got {told}.\n"


@pytest.mark.parametrize("option", ["--least-count=0", "--top=0", "--longest-line=0"])
def test_numbers_of_the_lexicon_that_are_out_of_range_are_refused(option, attncal, here):
    status, out, err = attncal("align", "lexicon", *TEXT, option)
    assert (status, out) == (1, "")
    assert f"{option.partition('=')[0]} must be from " in err


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_an_open_output_is_refused(name, attncal, here):
    """`--output /dev/stdout >> file` would replace the file of the shell."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("of Linux")
    (here / "log").write_text("before\n")
    with open(here / "log", "a") as log:
        status, out, err = attncal("align", "lexicon", *TEXT, "--output", name.format(log.fileno()))
    assert (status, out) == (1, "")
    assert "is a file that the shell has opened, which would be replaced. Give its name." in err
    assert (here / "log").read_text() == "before\n"


# ---- calibrate ----


def test_calibrate_and_run(attncal, trained, here):
    model = str(trained / "aligner")
    gold = ["--source", str(trained / "dev.en"), "--target", str(trained / "dev.de")]
    run = ["align", "run", model, *gold, "--scores"]
    before = attncal(*run)[1]
    status, out, err = attncal("align", "calibrate", model, *gold, "--gold", str(trained / "dev.links"))
    assert (status, err) == (0, "")
    assert "60 annotated pairs of the calibration, cross-validated" in out
    assert out.endswith(f"wrote {model}/{PROBABILITIES_FILE}\n")
    card = (trained / "aligner" / "README.md").read_text()
    assert card.count("## Link probabilities") == 1
    after = attncal(*run)[1]
    without_scores = [[word.split(":")[0] for word in text.split()] for text in (before, after)]
    assert without_scores[0] == without_scores[1]
    assert before != after
    some = attncal(*run, "--least-probability", "0.9")[1].split()
    assert 0 < len(some) < len(after.split())
    assert all(float(word.split(":")[1]) >= 0.9 for word in some)
    (trained / "aligner" / PROBABILITIES_FILE).rename(trained / "aligner" / "elsewhere")
    assert attncal(*run)[1] == before
    (trained / "aligner" / "elsewhere").rename(trained / "aligner" / PROBABILITIES_FILE)
    again = attncal("align", "calibrate", model, *gold, "--gold", str(trained / "dev.links"))
    assert again[0] == 0
    assert "95 %" in out
    assert "95 %" in again[1]
    assert (trained / "aligner" / "README.md").read_text().count("## Link probabilities") == 1
    (trained / "aligner" / PROBABILITIES_FILE).write_text('{"layer": 1}')
    status, _, err = attncal(*run)
    assert status == 1
    assert f"{PROBABILITIES_FILE} cannot be used: `seal` is missing" in err
    command = ["align", "calibrate", model, *gold, "--gold", str(trained / "dev.links")]
    assert attncal(*command)[0] == 0  # it does not read what it writes anew
    assert attncal(*run)[1] == after
    (trained / "aligner" / PROBABILITIES_FILE).unlink()
    status, _, err = attncal(*run, "--least-probability", "0.9")
    assert status == 1
    assert "attncal align calibrate" in err


def test_calibrate_into_another_folder_does_not_change_the_model(attncal, trained, here):
    files = {path.name for path in (trained / "aligner").iterdir()}
    names = {"source": "dev.en", "target": "dev.de", "gold": "dev.links"}
    files_read = [f"--{option}={trained / name}" for option, name in names.items()]
    status, out, _ = attncal("align", "calibrate", str(trained / "aligner"), *files_read, "--output", "new")
    assert (status, "bins:10" in out) == (0, True)
    assert [path.name for path in Path("new").iterdir()] == [PROBABILITIES_FILE]
    assert {path.name for path in (trained / "aligner").iterdir()} == files


def test_gold_that_does_not_fit_is_named(attncal, trained, here):
    text = ["--source", str(trained / "dev.en"), "--target", str(trained / "dev.de")]
    for gold, told in (("0-0\n", "60"), ("\n" * 60, "is empty"), ("99-0\n" * 60, "99-0")):
        (here / "gold").write_text(gold)
        status, out, err = attncal("align", "calibrate", str(trained / "aligner"), *text, "--gold", "gold")
        assert (status, out, "gold" in err, told in err) == (1, "", True, True)
    options = ["--gold", str(trained / "dev.links"), "--longest-line", "2"]
    _, _, err = attncal("align", "calibrate", str(trained / "aligner"), *text, *options)
    assert f"line 1 of {trained / 'dev.en'} has more than 2 bytes" in err
