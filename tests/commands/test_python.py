"""The functions of the commands from Python: over lists and files, with the result that the command writes."""

import hf_attncal

SOURCE, TARGET, LINKS = ["the old house", "the cat"], ["das alte Haus", "die Katze"], ["0-0 1-1 2-2", "0-0 1-1"]


def test_lexicon(attncal, tmp_path):
    for name, lines in {"source": SOURCE, "target": TARGET, "links": LINKS}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {name: tmp_path / name for name in ("source", "target", "links")}
    entries = hf_attncal.lexicon(SOURCE, TARGET, links=LINKS)
    assert [tuple(entry) for entry in entries[-2:]] == [("the", "das", 1, 0.5, 1.0), ("the", "die", 1, 0.5, 1.0)]
    assert hf_attncal.lexicon(**files) == entries
    assert hf_attncal.lexicon(files["source"], TARGET, links=[[(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 1)]]) == entries
    assert hf_attncal.lexicon(SOURCE, TARGET, links=LINKS, output=tmp_path / "lexicon") is None
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert attncal("align", "lexicon", *options)[1] == (tmp_path / "lexicon").read_text(encoding="utf-8")
