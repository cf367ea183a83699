"""Make aligners that are ready to use, with their checks, and score them: results/ready/aligners.json, jaen.json.

    python experiments/software_text.py --data ROOT --packages FOLDER --europarl FOLDER
    python experiments/ready_aligners.py --data ROOT                                # ten minutes on one core
    python experiments/ready_aligners.py --data ROOT --only check                   # or score: that part again
    python experiments/ready_aligners.py --data ROOT --pair jaen --folder aligners  # Japanese-English, to publish

German-English comes with the package: it counts the training text of `tatoeba-deen`, raw, and what
`software_text.py` writes under ROOT: Europarl and messages of software. English-German has the same counts, mirrored.
Japanese-English and English-Japanese count `tanaka-enja`, without spaces in the Japanese. Each then learns what good
pairs look like from the same text, at most `CHECKED` pairs of each corpus, so that none outweighs the others. Counts
are rounded to `BITS` bits, so that they are small. The same text makes the same files, byte for byte.

The scores: AER on annotated links that nothing was chosen on; ROC AUC of the verdict on the annotated translations of
`hallucinations-deen`; and of errors planted by another generator than the one that the check learns from, how many are
found where 1 in 100 clean lines is flagged.
"""

import argparse
import gzip
import json
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import other_errors
import torch
from check import CLEAN, COLUMNS, FAULTS, told
from detection import detection
from safetensors.numpy import load_file, save_file

import hf_attncal
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.alignment.ready import READY, READY_FOLDER, ReadyAligner, mirrored, ready_or_named
from hf_attncal.checking import Checker
from hf_attncal.checking.checker import SharedTargets
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.io.files import json_text, sha256, write_json
from hf_attncal.layouts import CARD, CHECK_FILE, CONFIG, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

BITS = 8
CHECKED = 50_000
MADE = (CONFIG, WEIGHTS, TOKENIZER, TOKENIZER_CONFIG, CHECK_FILE, CARD)
RESULTS = Path(__file__).parents[1] / "results" / "ready"


class Text(NamedTuple):
    """A text, and what is made of it and scored.

    Args:
        aligners: rows of `ready.READY` by name, or of the same kind; the first counts, the other mirrors it.
        corpora: folders of the training text, and how many pairs each has.
        vocabulary: tokens of both sides together.
        raw: makes a tokenised line one as people write it, by language.
        gold: corpora with annotated links, and their splits.
        clean: corpora of clean lines, and the files of both sides.
        results: file of the scores.
    """

    aligners: dict[str, ReadyAligner]
    corpora: dict[str, int]
    vocabulary: int
    raw: dict[str, Callable[[str], str]]
    gold: dict[str, str]
    clean: dict[str, tuple[str, str]]
    results: str


def raw(line: str) -> str:
    """Return a line as people write negations and endings: `don't`, `Tom's`."""
    return re.sub(r" (n't|'(?:s|m|re|ve|ll|d))\b", r"\1", line)


def unspaced(line: str) -> str:
    """Return a line of Japanese as people write it."""
    return line.replace(" ", "")


_TANAKA = "the Tanaka corpus, sentences of tatoeba.org, CC BY 2.0 FR, cut out by github.com/odashi/small_parallel_enja"
TEXTS = {
    "deen": Text(
        READY,
        {"tatoeba-deen": 166_157, "comtrans-deen": 23_097, "software-ende": 51_304},
        16_000,
        {"de": raw, "en": raw},
        {"rwth-deen": "test", "bicici-deen": "dev"},
        {name: CLEAN[name] for name in ("tatoeba-deen", "multi30k")},
        "aligners.json",
    ),
    "jaen": Text(
        {"jaen": ReadyAligner("ja", "en", _TANAKA), "enja": ReadyAligner("en", "ja", _TANAKA, "jaen")},
        {"tanaka-enja": 50_000},
        10_000,
        {"ja": unspaced, "en": raw},
        {"kftt-jaen": "test"},
        {"tanaka-enja": ("tanaka-enja/dev.ja", "tanaka-enja/dev.en")},
        "jaen.json",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--pair", choices=TEXTS, default="deen")
    parser.add_argument("--folder", type=Path, help="of the aligners; by default, of deen, the package")
    parser.add_argument("--only", choices=("make", "check", "score"), help="check: learn anew what check.json holds")
    parser.add_argument("--aligner", help="name of the only one whose check is learned anew")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    text = TEXTS[args.pair]
    if args.folder is None and text.aligners is not READY:
        parser.error("--folder: the package has German and English alone, so say where others go.")
    torch.set_num_threads(1)
    began = time.process_time()
    if args.only in (None, "make"):
        make(text, args.data, args.folder)
    if args.only == "check":
        learn_checks(text, args.data, args.folder, args.aligner)
    if args.only in (None, "score"):
        score(text, args.data, args.folder, args.output or RESULTS / text.results, time.process_time() - began)


# ---- making ----


def make(text: Text, data: Path, folder: Path | None) -> None:
    """Make the aligners of a text from the files train.*.gz of its corpus."""
    with TemporaryDirectory() as runs:
        counted = Path(runs, "counted")
        texts = raw_texts(text, data, Path(runs), "train")
        source, target = map(str, texts.values())
        settings = ("data.raw_text=true", f"tokenizer.vocab_size={text.vocabulary}")
        hf_attncal.train_aligner(*settings, config="hmm", source=source, target=target, output=counted)
        model = HMMAlignModel.from_pretrained(counted)
        round_counts(model)
        for name, ready in text.aligners.items():
            made = Path(runs, name)
            model.save_pretrained(made)
            if ready.mirrors:
                tables = load_file(made / WEIGHTS)
                save_file(mirrored(tables, model.config.vocab_size), made / WEIGHTS, {"format": "pt"})
            for file in (TOKENIZER, TOKENIZER_CONFIG):
                shutil.copy(counted / file, made)
            if text.aligners is READY:  # the code is the package's; what is published has its own
                values = json.loads((made / CONFIG).read_text(encoding="utf-8"))
                values.pop("auto_map", None)
                (made / CONFIG).write_text(json_text(values), encoding="utf-8")
            _learn_check(made, raw_texts(text, data, Path(runs), "check", CHECKED), text)
            keep(made, folder, ready)


def learn_checks(text: Text, data: Path, folder: Path | None, only: str | None = None) -> None:
    """Learn what good pairs look like anew, for aligners that stay as they are; for all, or for one."""
    with TemporaryDirectory() as place:
        texts = raw_texts(text, data, Path(place), "check", CHECKED)
        for name, ready in text.aligners.items():
            if only not in (None, name):
                continue
            made = Path(place, name)
            shutil.copytree(folder_of(name, folder), made)
            _learn_check(made, texts, text)
            keep(made, folder, ready)


def keep(made: Path, folder: Path | None, ready: ReadyAligner) -> None:
    """Copy an aligner to its place; one of the package that mirrors another keeps what it does not share with it."""
    place = (folder or READY_FOLDER) / made.name
    files = MADE if folder is None else {*MADE, *(path.name for path in made.glob("*.py"))}
    if folder is None and ready.mirrors:
        files = (CHECK_FILE, CARD)
        check = json.loads((made / CHECK_FILE).read_text(encoding="utf-8"))
        (made / CHECK_FILE).write_text(json_text(check | {"counts": []}), encoding="utf-8")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for file in files:
        shutil.copyfile(made / file, place / file)
    print(f"{place}: {sum(path.stat().st_size for path in place.iterdir()):,} bytes")


def folder_of(name: str, folder: Path | None) -> Path:
    return Path(ready_or_named(name)) if folder is None else folder / name


def _learn_check(made: Path, texts: dict[str, Path], text: Text) -> None:
    """Learn the check of an aligner, and write its card."""
    ready = text.aligners[made.name]
    hf_attncal.check_learn(made, source=str(texts[ready.source]), target=str(texts[ready.target]))
    (made / CARD).write_text(card(text, made.name), encoding="utf-8")


def raw_texts(text: Text, data: Path, place: Path, name: str, most: int | None = None) -> dict[str, Path]:
    """Write the training text as people write it, at most some pairs of a corpus; return the file of each language."""
    texts = {side: place / f"{name}.{side}" for side in text.raw}
    for side, path in texts.items():
        with path.open("w", encoding="utf-8") as out:
            for corpus in text.corpora:
                with gzip.open(data / corpus / f"train.{side}.gz", "rt", encoding="utf-8") as file:
                    lines = file.readlines()
                chosen = random.Random(corpus).sample(lines, min(len(lines), most or len(lines)))
                out.writelines(map(text.raw[side], chosen))
    return texts


def round_counts(model: HMMAlignModel) -> None:
    """Round the counts to `BITS` bits, which costs nothing on bicici-deen/dev; to leave out small ones does."""
    mantissa, exponent = torch.frexp(model.counts)
    model.counts = torch.ldexp(torch.round(mantissa * 2**BITS) / 2**BITS, exponent)


def card(text: Text, name: str) -> str:
    ready = text.aligners[name]
    comes = text.aligners is READY
    where = "It comes with `hf_attncal`:" if comes else f"With `hf_attncal`, in a folder `{name}`:"
    return f"""---
library_name: hf_attncal
license: cc-by-2.0
language: [{ready.source}, {ready.target}]
tags: [word-alignment, hmm_align]
---

# {name}

A word aligner that counts ({ready.source} to {ready.target}), with what `attncal check` goes by. \
{where}

```bash
attncal align run {name} --source a.{ready.source} --target b.{ready.target}
attncal check {name} --source a.{ready.source} --target b.{ready.target} --format marked
```

It has read {sum(text.corpora.values()):,} pairs: {ready.credit}. Text of another trade wants an aligner of its own
(`attncal align train`), or `--adapt`. `experiments/ready_aligners.py` makes it and scores it.
"""


# ---- scores ----


def score(text: Text, data: Path, folder: Path | None, output: Path, seconds: float) -> None:
    files, aligners, sides = {}, {}, list(text.raw)
    for name, ready in text.aligners.items():
        place, wanted = folder_of(name, folder), [ready.source, ready.target]
        checker = Checker.from_pretrained(place, device="cpu")
        found = {"aer": {}, "bytes": sum(path.stat().st_size for path in place.iterdir())}
        for corpus, split in text.gold.items():
            paths = [data / corpus / f"{split}.{end}" for end in (*sides, "align")]
            files |= {f"{corpus}/{path.name}": path for path in paths}
            found["aer"][corpus] = _aer(checker.aligner, Gold.read(*paths), wanted != sides)
        if wanted == ["de", "en"]:
            tsv = data / "hallucinations-deen" / "dev.tsv"
            files["hallucinations-deen/dev.tsv"] = tsv
            found["faults"] = _faults(checker, tsv)
        found["planted"] = {}
        for clean, names in text.clean.items():
            paths = [data / path for path in names]
            files |= dict(zip(names, paths, strict=True))
            by_end = {path.suffix[1:]: path for path in paths}
            texts = [by_end[end].read_text(encoding="utf-8").splitlines() for end in wanted]
            found["planted"][clean] = _planted(checker, list(zip(*texts, strict=True)))
        found["sha256"] = {file: sha256(place / file) for file in MADE}
        aligners[name] = found
    config = {"corpora": text.corpora, "vocabulary": text.vocabulary, "bits": BITS}
    head = records.record(config, files, "cpu")
    write_json(head | {"cpu_seconds_to_make": round(seconds), "aligners": aligners}, output)
    print(f"wrote {output}")


def _aer(aligner: WordAligner, gold: Gold, mirrored: bool) -> dict:
    if mirrored:
        sides = [(target, source) for source, target in gold.pairs]
        links = [[(i, j) for j, i in one.links] for one in aligner.align(sides)]
        rule = aligner.source.symmetrization
        found = alignment_error_rate(gold.links, links, symmetrization=rule, bootstrap=1000)
    else:
        found = score_aligner(aligner, gold, bootstrap=1000)
    return {"aer": found.aer, "interval": found.interval, "signature": found.signature}


def _faults(checker: Checker, path: Path) -> dict:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    pairs = [(row[0], row[1]) for row in rows]
    marks = [dict(zip(COLUMNS, map(int, row[3:]), strict=True)) for row in rows]
    verdicts = checker.check(pairs, shared=SharedTargets(pairs))
    return {
        fault: told(
            detection(
                [any(mark[column] for column in columns) for mark in marks],
                [getattr(verdict, name) for verdict in verdicts],
                1000,
            )
        )
        for fault, (columns, name) in FAULTS.items()
    }


def _planted(checker: Checker, pairs: list[tuple[str, str]], seed: int = 7) -> dict:
    pairs = [pair for pair in pairs if min(len(side.split()) for side in pair) > 2]
    clean = checker.check(pairs)
    bar = float(np.quantile([verdict.wrong for verdict in clean], 0.99))
    kinds = {}
    for kind, wrong in other_errors.errors(pairs, seed).items():
        if len(wrong) >= 20:
            verdicts = checker.check(wrong)
            kinds[kind] = {
                "lines": len(wrong),
                "recall_at_1pc": sum(verdict.wrong > bar for verdict in verdicts) / len(wrong),
                "flagged": sum(bool(verdict.flagged) for verdict in verdicts) / len(wrong),
            }
    flagged = sum(bool(verdict.flagged) for verdict in clean) / len(clean)
    return {"clean": len(clean), "clean_flagged": flagged, "kinds": kinds}


if __name__ == "__main__":
    main()
