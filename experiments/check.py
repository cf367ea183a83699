"""How well `attncal check` finds faults of translations: annotated ones, planted ones, and those of clean text.

    python experiments/check.py --data ROOT --model FOLDER --output DIR hallucinations
    python experiments/check.py --data ROOT --model FOLDER --clean multi30k --output DIR recall
    python experiments/check.py --data ROOT --model FOLDER --clean multi30k --output DIR false_alarms
    python experiments/check.py --data ROOT --model FOLDER --output DIR speed

ROOT has a folder for each corpus. FOLDER is an aligner that has learned what good pairs look like (`attncal check
learn FOLDER --source ... --target ...`): from clean text and errors planted into it, never from annotated
translations. DIR is results/check.

- `hallucinations`: ROC AUC and precision at 90 % recall on the annotated translations of Guerreiro et al. (2023), dev
  half. "any" is a repetition, or strongly or fully unsupported; "detached" is fully unsupported. `line` reads each
  line by itself, `together` also sees which targets stand with many sources. Beside them: the length of the target
  alone, and 1 - `WordAlignment.score`.
- `recall`: errors that another generator plants (`other_errors.py`): how many the verdict finds where it flags 1 in
  100 of the clean lines, how many it flags by its own alarm, and the ROC AUC.
- `false_alarms`: share of the lines of clean text that are flagged, and the twenty worst of them.
- `facts`: flagged lines of numbers that were changed, and of right ones written another way (`../cases/numbers`).
- `speed`: lines a second of one thread, in seconds of the processor, with all that reads and writes lines left out.
"""

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np
import other_errors
import torch
from detection import Detection, detection

from hf_attncal.checking.checker import Checker, SharedTargets
from hf_attncal.checking.verdicts import VERDICTS, PairVerdict
from hf_attncal.io.files import open_to_read, write_json
from hf_attncal.metrics import records

Pairs = list[tuple[str, str]]
BOOTSTRAP = 1000
COLUMNS = ("correctness", "repetitions", "named-entities", "omission", "strong-unsupport", "full-unsupport")
# Fault, by its name in the committed results -> the columns of dev.tsv any of which makes it, and the probability that
# should find it.
FAULTS = {
    "any": (("repetitions", "strong-unsupport", "full-unsupport"), "hallucinated"),
    "detached": (("full-unsupport",), "unrelated"),
    "omission": (("omission",), "omission"),
    "repetitions": (("repetitions",), "repeats"),
}
# Corpus -> source and target of text that is held to be clean, and that no aligner here is trained on.
CLEAN = {
    "tatoeba-deen": ("tatoeba-deen/test.de", "tatoeba-deen/test.en"),
    "multi30k": ("multi30k/test_2016_flickr.de", "multi30k/test_2016_flickr.en"),
    "wpt03-enfr": ("wpt03-enfr/test.en", "wpt03-enfr/test.fr"),
    "wpt03-enfr-mt": ("wpt03-enfr/mt-test.en.gz", "wpt03-enfr/mt-test.fr.gz"),
    "dermit-derm": ("dermit-derm/test.de", "dermit-derm/test.rm"),
    "dermit-derm-mt": ("dermit-derm/mt-test.de", "dermit-derm/mt-test.rm"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--clean", choices=CLEAN, default="tatoeba-deen", help="recall, false_alarms: the clean text")
    parser.add_argument("--label", help="ends the file's name: another aligner than the one of the other files")
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    PARTS[options.part](options, Checker.from_pretrained(options.model, device="cpu"))


def hallucinations(options: argparse.Namespace, checker: Checker) -> None:
    """Score the annotated translations."""
    path = options.data / "hallucinations-deen" / "dev.tsv"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    pairs = [(row[0], row[1]) for row in rows]
    marks = [dict(zip(COLUMNS, map(int, row[3:]), strict=True)) for row in rows]
    scores = {"line": checker.check(pairs), "together": checker.check(pairs, shared=SharedTargets(pairs))}
    baselines = {
        "shorter": [-checker.model.length_deviation(*pair) for pair in pairs],
        "alignment_score": [1 - (found.score or 0) for found in checker.aligner.align(pairs)],
    }
    found = {}
    for fault, (columns, score) in FAULTS.items():
        truths = [any(mark[column] for column in columns) for mark in marks]
        values = {name: [getattr(verdict, score) for verdict in verdicts] for name, verdicts in scores.items()}
        values |= baselines
        found[fault] = {name: told(detection(truths, of_lines, BOOTSTRAP)) for name, of_lines in values.items()}
    write(options, checker, "hallucinations-deen", {"dev.tsv": path}, {"lines": len(pairs), "faults": found})


def recall(options: argparse.Namespace, checker: Checker, seed: int = 7) -> None:
    """Find errors that the check did not learn from."""
    pairs, files = clean_text(options)
    pairs = [pair for pair in pairs if min(len(side.split()) for side in pair) > 2]
    clean = checker.check(pairs)
    bar = float(np.quantile([verdict.wrong for verdict in clean], 0.99))
    kinds = {}
    for kind, wrong in other_errors.errors(pairs, seed).items():
        if len(wrong) < 20:
            continue
        verdicts = checker.check(wrong)
        truths = [False] * len(clean) + [True] * len(verdicts)
        found = detection(truths, [verdict.wrong for verdict in (*clean, *verdicts)], BOOTSTRAP)
        kinds[kind] = {
            "lines": len(wrong),
            "recall_at_1pc": sum(verdict.wrong > bar for verdict in verdicts) / len(wrong),
            "flagged": sum(bool(verdict.flagged) for verdict in verdicts) / len(wrong),
            "auc": told(found)["auc"],
        }
    flagged = sum(bool(verdict.flagged) for verdict in clean) / len(clean)
    write(
        options,
        checker,
        f"recall_{options.clean}",
        files,
        {"clean": len(clean), "clean_flagged": flagged, "kinds": kinds},
    )


def facts(options: argparse.Namespace, checker: Checker) -> None:
    """Count flagged lines whose numbers were changed, or are right and written another way, of `cases/numbers`."""
    folder = options.data.resolve().parent / "cases" / "numbers"
    sides = {
        name: (folder / name).read_text(encoding="utf-8").splitlines()
        for name in ("source.de", "right.en", "wrong.en")
    }
    numbers = {}
    for name in ("right", "wrong"):
        verdicts = checker.check(list(zip(sides["source.de"], sides[f"{name}.en"], strict=True)))
        numbers[f"{name}_flagged"] = sum(bool(verdict.flagged) for verdict in verdicts) / len(verdicts)
    write(
        options,
        checker,
        "facts",
        {name: folder / name for name in sides},
        {"lines": len(sides["source.de"]), **numbers},
    )


def false_alarms(options: argparse.Namespace, checker: Checker) -> None:
    """Count the lines of clean text that are flagged."""
    pairs, files = clean_text(options)
    verdicts = checker.check(pairs)
    flagged = [(number, verdict) for number, verdict in enumerate(verdicts, 1) if verdict.flagged]
    worst = sorted(flagged, key=lambda line: -line[1].wrong)[:20]
    numbers = {
        "lines": len(pairs),
        "flagged": len(flagged),
        "share": len(flagged) / len(pairs),
        "by_verdict": {name: sum(name in verdict.flagged for verdict in verdicts) for name in VERDICTS},
        "worst": [shown(number, verdict) for number, verdict in worst],
    }
    write(options, checker, f"false_alarms_{options.clean}", files, numbers)


def speed(options: argparse.Namespace, checker: Checker, lines: int = 20_000) -> None:
    """Time the check of annotated translations, again and again."""
    path = options.data / "hallucinations-deen" / "dev.tsv"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    pairs = [(row[0], row[1]) for row in rows]
    measured, repetitions = [], max(3, lines // len(pairs))
    for _ in range(repetitions):
        start = time.process_time()
        for _ in checker.stream(pairs):
            pass
        measured.append(len(pairs) / (time.process_time() - start))
    measured.sort()
    numbers = {
        "lines_per_core_second": {"median": measured[len(measured) // 2], "min": measured[0], "max": measured[-1]},
        "lines": len(pairs),
        "repetitions": repetitions,
        "mean_words": sum(len(text.split()) for pair in pairs for text in pair) / len(pairs),
    }
    write(options, checker, "speed", {"dev.tsv": path}, numbers)


def clean_text(options: argparse.Namespace) -> tuple[Pairs, dict[str, Path]]:
    """The pairs of a clean text, and its files by name."""
    paths = [options.data / name for name in CLEAN[options.clean]]
    sides = []
    for path in paths:
        with open_to_read(path) as file:
            sides.append(file.read().decode("utf-8").splitlines())
    return list(zip(*sides, strict=True)), dict(zip(CLEAN[options.clean], paths, strict=True))


def told(found: Detection) -> dict:
    """A detection as plain data."""
    return dataclasses.asdict(found)


def shown(number: int, verdict: PairVerdict) -> dict:
    """A flagged line of a results file."""
    source, target = verdict.marked()
    return {"line": number, "source": source, "target": target, "flagged": list(verdict.flagged)}


def write(options: argparse.Namespace, checker: Checker, name: str, files: dict[str, Path], numbers: dict) -> None:
    """Write results/check/NAME.json."""
    config = {
        "part": options.part,
        "clean": options.clean,
        "aligner": checker.aligner.model.config.model_type,
        "learned": checker.model.learned,
        "alarm": checker.model.alarm,
        "bootstrap": BOOTSTRAP,
    }
    path = options.output / f"{name}{'_' + options.label if options.label else ''}.json"
    write_json(records.record(config, files, "cpu") | numbers, path)
    print(f"wrote {path}")


PARTS = {
    "hallucinations": hallucinations,
    "recall": recall,
    "false_alarms": false_alarms,
    "facts": facts,
    "speed": speed,
}

if __name__ == "__main__":
    main()
