"""Make the aligners that come with the package, and score them: results/ready/aligners.json.

    python experiments/ready_aligners.py --data ROOT                 # some minutes on one core
    python experiments/ready_aligners.py --data ROOT --only check    # or score: that part again

German-English counts the training text of `tatoeba-deen`, raw; English-German has the same counts, mirrored. Each then
learns what good pairs look like from the same text. Counts are rounded to `BITS` bits, so that the wheel is small. The
same text makes the same files, byte for byte.

The scores: AER on annotated links that nothing was chosen on; ROC AUC of the verdict on the annotated translations of
`hallucinations-deen`; and of errors planted by another generator than the one that the check learns from, how many are
found where 1 in 100 clean lines is flagged.
"""

import argparse
import gzip
import json
import re
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import other_errors
import torch
from check import CLEAN, COLUMNS, FAULTS, told

import hf_attncal
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.alignment.ready import READY, READY_FOLDER, ReadyAligner
from hf_attncal.checking import Checker
from hf_attncal.checking.checker import SharedTargets
from hf_attncal.data.gold import Gold
from hf_attncal.files import json_text, sha256, write_json
from hf_attncal.layouts import CARD, CHECK_FILE, CONFIG, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.metrics.detection import detection
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

CORPUS = "tatoeba-deen"
VOCABULARY, BITS = 16_000, 8
GOLD = {"rwth-deen": "test", "bicici-deen": "dev"}  # German first
MADE = (CONFIG, WEIGHTS, TOKENIZER, TOKENIZER_CONFIG, CHECK_FILE, CARD)
RESULTS = Path(__file__).parents[1] / "results" / "ready" / "aligners.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--folder", type=Path, default=READY_FOLDER, help="of the aligners; by default in the package")
    parser.add_argument("--only", choices=("make", "check", "score"), help="check: learn anew what check.json holds")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    if args.only in (None, "make"):
        make(args.data / CORPUS, args.folder)
    if args.only == "check":
        learn_checks(args.data / CORPUS, args.folder)
    if args.only in (None, "score"):
        score(args.data, args.folder, args.output, time.process_time() - began)


# ---- making ----


def make(corpus: Path, folder: Path) -> None:
    """Make all aligners from the files train.de.gz and train.en.gz."""
    with TemporaryDirectory() as runs:
        texts = raw_texts(corpus, Path(runs))
        source, target = (str(texts[side]) for side in ("de", "en"))
        settings = ("data.raw_text=true", f"tokenizer.vocab_size={VOCABULARY}")
        hf_attncal.train_aligner(*settings, config="hmm", source=source, target=target, output=Path(runs, "counted"))
        counted = Path(runs, "counted")
        model = HMMAlignModel.from_pretrained(counted)
        round_counts(model)
        for name, ready in READY.items():
            made = Path(runs, name)
            if (ready.source, ready.target) == ("en", "de"):
                mirror(model)
            model.save_pretrained(made)
            for file in (TOKENIZER, TOKENIZER_CONFIG):
                shutil.copy(counted / file, made)
            values = json.loads((made / CONFIG).read_text(encoding="utf-8"))
            values.pop("auto_map", None)  # the code is the package's
            (made / CONFIG).write_text(json_text(values), encoding="utf-8")
            _learn_check(made, texts, ready)
            (made / CARD).write_text(card(name), encoding="utf-8")
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
            for file in MADE:
                shutil.copyfile(made / file, folder / name / file)
            print(f"{folder / name}: {sum(path.stat().st_size for path in (folder / name).iterdir()):,} bytes")


def learn_checks(corpus: Path, folder: Path) -> None:
    """Learn what good pairs look like anew, for aligners that stay as they are."""
    with TemporaryDirectory() as place:
        texts = raw_texts(corpus, Path(place))
        for name, ready in READY.items():
            made = Path(place, name)
            shutil.copytree(folder / name, made)
            _learn_check(made, texts, ready)
            shutil.copyfile(made / CHECK_FILE, folder / name / CHECK_FILE)


def _learn_check(made: Path, texts: dict[str, Path], ready: ReadyAligner) -> None:
    hf_attncal.check(made, clean_source=str(texts[ready.source]), clean_target=str(texts[ready.target]))


def raw_texts(corpus: Path, place: Path) -> dict[str, Path]:
    """Write the training text as people write it; return the file of each side."""
    texts = {side: place / f"train.{side}" for side in ("de", "en")}
    for side, path in texts.items():
        with gzip.open(corpus / f"train.{side}.gz", "rt", encoding="utf-8") as file:
            path.write_text("".join(map(raw, file)), encoding="utf-8")
    return texts


def raw(line: str) -> str:
    """Return a line as people write negations and endings: `don't`, `Tom's`."""
    return re.sub(r" (n't|'(?:s|m|re|ve|ll|d))\b", r"\1", line)


def round_counts(model: HMMAlignModel) -> None:
    """Round the counts to `BITS` bits, which costs nothing on bicici-deen/dev; to leave out small ones does."""
    mantissa, exponent = torch.frexp(model.counts)
    model.counts = torch.ldexp(torch.round(mantissa * 2**BITS) / 2**BITS, exponent)


def mirror(model: HMMAlignModel) -> None:
    """Exchange source and target."""
    size = model.config.vocab_size
    pairs = model.pairs % size * size + model.pairs // size
    order = pairs.argsort()
    model.pairs, model.counts = pairs[order], model.counts[order]
    for name, other in (
        ("source_counts", "target_counts"),
        ("source_null_counts", "target_null_counts"),
        ("forward_jumps", "backward_jumps"),
    ):
        one, two = getattr(model, name).clone(), getattr(model, other).clone()
        getattr(model, name).copy_(two)
        getattr(model, other).copy_(one)


def card(name: str) -> str:
    ready = READY[name]
    return f"""---
library_name: hf_attncal
license: cc-by-2.0
language: [{ready.source}, {ready.target}]
tags: [word-alignment, hmm_align]
---

# {name}

A word aligner that counts ({ready.source} to {ready.target}), with what `attncal check` goes by. It comes with \
`hf_attncal`:

```bash
attncal align run {name} --source a.{ready.source} --target b.{ready.target}
attncal check {name} --source a.{ready.source} --target b.{ready.target} --format marked
```

It has read 166,157 pairs: {ready.credit}. It knows everyday words; text of a trade wants an aligner of its own
(`attncal align train`), or `--adapt`. `experiments/ready_aligners.py` makes it and scores it.
"""


# ---- scores ----


def score(data: Path, folder: Path, output: Path, seconds: float) -> None:
    files, aligners = {}, {}
    for name, ready in READY.items():
        checker = Checker.from_pretrained(folder / name, device="cpu")
        wanted = [ready.source, ready.target]
        found = {"aer": {}, "bytes": sum(path.stat().st_size for path in (folder / name).iterdir())}
        for corpus, split in GOLD.items():
            paths = [data / corpus / f"{split}.{end}" for end in ("de", "en", "align")]
            files |= {f"{corpus}/{path.name}": path for path in paths}
            found["aer"][corpus] = _aer(checker.aligner, Gold.read(*paths), wanted != ["de", "en"])
        if wanted == ["de", "en"]:
            tsv = data / "hallucinations-deen" / "dev.tsv"
            files["hallucinations-deen/dev.tsv"] = tsv
            found["faults"] = _faults(checker, tsv)
        found["planted"] = {}
        for clean in ("tatoeba-deen", "multi30k"):
            paths = [data / path for path in CLEAN[clean]]
            files |= dict(zip(CLEAN[clean], paths, strict=True))
            by_end = {path.suffix[1:]: path for path in paths}
            texts = [by_end[end].read_text(encoding="utf-8").splitlines() for end in wanted]
            found["planted"][clean] = _planted(checker, list(zip(*texts, strict=True)))
        found["sha256"] = {file: sha256(folder / name / file) for file in MADE}
        aligners[name] = found
    config = {"corpus": CORPUS, "vocabulary": VOCABULARY, "bits": BITS}
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
