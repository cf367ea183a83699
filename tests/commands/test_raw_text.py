"""Raw and compressed text: `--tokenize`, `--offsets`, and the suffixes of what is read and written."""

import json
from pathlib import Path

import pytest

from hf_attncal.alignment import WordAligner
from hf_attncal.commands import main
from hf_attncal.data.segmentation import segment
from hf_attncal.io.files import compressing, open_to_read
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig

ENGLISH = ["The old house, the red house.", "It's red!", "An old, old house", ""] * 30
CHINESE = ["老房子，红房子。", "它是红的！", "一座老老的房子", "空"] * 30
SETTINGS = ["--config", "hmm", "tokenizer.vocab_size=60", "data.held_out_pairs=0"]


def write(path: Path, lines: list[str]) -> str:
    file = open(path, "wb")  # noqa: SIM115
    with compressing(file) if path.suffix == ".gz" else file as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two texts, compressed, and an aligner that has learned from them as they are."""
    folder = tmp_path_factory.mktemp("raw")
    text = [write(folder / "en.gz", ENGLISH), write(folder / "zh.gz", CHINESE)]
    train = ["align", "train", "--source", text[0], "--target", text[1], "--output", str(folder / "raw")]
    assert main([*train, "data.raw_text=true", *SETTINGS]) == 0
    return folder


@pytest.fixture
def run(folder, capfdbinary):
    """`attncal align run` of the aligner on both texts: (options) -> lines."""

    def run(*options: str) -> list[str]:
        given = ["align", "run", str(folder / "raw"), "--device", "cpu"]
        capfdbinary.readouterr()
        assert main([*given, "--source", str(folder / "en.gz"), "--target", str(folder / "zh.gz"), *options]) == 0
        return capfdbinary.readouterr().out.decode().splitlines()

    return run


@pytest.fixture(scope="module")
def aligner(folder):
    return WordAligner.from_pretrained(folder / "raw", device="cpu")


def links_of(line: str) -> list[tuple[str, str]]:
    return [tuple(link.split("-")) for link in line.split()]


# ---- raw text ----


def test_an_aligner_trained_on_raw_text_has_it_saved(folder, run):
    config = json.loads((folder / "raw" / "config.json").read_text())
    assert config["tokenize"] is True
    assert HMMAlignConfig().tokenize is False
    assert run() == run("--tokenize")
    assert run() != run("--no-tokenize")


def test_links_are_between_white_space_words(run, aligner):
    pairs = list(zip(ENGLISH, CHINESE, strict=True))
    for line, (source, target) in zip(run("--tokenize"), pairs, strict=True):
        for i, j in links_of(line):
            assert int(i) < len(source.split())
            assert int(j) < len(target.split())
    found = aligner.align(pairs, tokenize=True)
    assert run("--tokenize", "--scores") == [one.pharaoh(scores=True) for one in found]
    assert [(one.source, one.target) for one in found] == [(tuple(s.split()), tuple(t.split())) for s, t in pairs]
    assert all(len(one.source_null) == len(one.source) for one in found)


def test_offsets_are_characters_of_words(run):
    seen = set()
    for line, source, target in zip(run("--offsets"), ENGLISH, CHINESE, strict=True):
        for link in links_of(line):
            (i, k), (j, m) = (map(int, side.split(":")) for side in link)
            assert source[i:k] in segment(source).words
            assert target[j:m] in segment(target).words
            seen.add((source[i:k], target[j:m]))
    assert ("red", "红") in seen
    (scored, *_) = run("--offsets", "--scores")
    assert all(len(link.split(":")) == 4 for link in scored.split())


def test_offsets_of_joined_lines_count_in_each_side(folder, tmp_path, capfdbinary):
    path = write(tmp_path / "pairs", [f" \t {s}   |||\u3000{t} " for s, t in zip(ENGLISH, CHINESE, strict=True)])
    outputs = []
    files = ["--source", str(folder / "en.gz"), "--target", str(folder / "zh.gz")]
    for given in (["--source", path], files):
        assert main(["align", "run", str(folder / "raw"), "--device", "cpu", "--offsets", *given]) == 0
        outputs.append(capfdbinary.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"-") > 100


def test_json_has_the_words_and_with_offsets_their_characters(run):
    found = json.loads(run("--format", "json")[1])
    assert found["source"] == ["It's", "red!"]
    assert "source_spans" not in found
    found = json.loads(run("--format", "json", "--offsets")[1])
    assert found["source"] == ["It", "'s", "red", "!"]
    assert found["source_spans"] == [[0, 2], [2, 4], [5, 8], [8, 9]]
    assert found["target_spans"] == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]


def test_spans_are_written_only_on_request(aligner):
    (found,) = aligner.align([("a", "b")])
    with pytest.raises(ValueError, match="spans=True"):
        found.offsets()


@pytest.mark.slow
def test_gold_links_of_raw_text_are_of_white_space_words(folder, tmp_path):
    """Dev pairs are aligned as text is: between words that white space parts."""
    gold = write(tmp_path / "gold", ["0-0 3-0", "0-0 1-0", "3-0", ""] * 30)
    names = {"source": str(folder / "en.gz"), "target": str(folder / "zh.gz")}
    given = [word for side, name in names.items() for word in (f"--{side}", name)] + ["--dev", *names.values(), gold]
    train = ["align", "train", *given, "--output", str(tmp_path / "new"), "data.raw_text=true"]
    assert main([*train, *SETTINGS]) == 0
    dev = json.loads((tmp_path / "new" / "results.json").read_text())["dev"]
    assert dev["sentences"] == 120
    assert dev["proposed"] <= 120 * 6


def test_links_of_tokenised_text_do_not_guide_raw_text(folder, tmp_path, capsys):
    guide = write(tmp_path / "guide", ["0-0"] * 120)
    text = ["--source", str(folder / "en.gz"), "--target", str(folder / "zh.gz")]
    given = ["align", "train", *text, "--output", str(tmp_path / "new"), "data.raw_text=true", "--links", guide]
    assert main(given) == 1
    assert "`data.train.guide` has links of tokenised text" in capsys.readouterr().err


# ---- compressed ----


def test_an_output_is_compressed_by_its_suffix(run, tmp_path):
    plain = "".join(f"{line}\n" for line in run())
    for name in ("a", "b"):
        run("--output", str(tmp_path / f"{name}.gz"))
    with open_to_read(tmp_path / "a.gz") as file:
        assert file.read().decode() == plain
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gz", "b.gz"]
