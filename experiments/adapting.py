"""Aligners on text that they do not know, and aligners without a model, beside eflomal that read the same text.

    python experiments/adapting.py --data ROOT --eflomal PATH --output FOLDER adapted kftt-jaen rwth-deen
    python experiments/adapting.py --data ROOT --eflomal PATH --output FOLDER quick --pairs 200 1000 wpt03-enfr
    python experiments/adapting.py --data ROOT --eflomal PATH --encoder NAME quick --pairs 100 200 100000 wpt03-enfr

`adapted`: counts learn from the training text of the pair (`TEXTS`; `--config hmm`, without gold links), and align the
test as they are ("hmm"), and after they have read its words (`WordAligner.adapt`: "adapted"). eflomal learns from the
training text and the test together, and so does "quick" (`align_quick`); a pair without training text is only aligned
so, with the text beside it. "identical" is the recall of the diagonal where the source of the test is on both sides.

`quick`: 200, 1,000, ... pairs, of which the first 150 of the test are scored, the rest is training text, evenly
spread, and other text where that is not enough (`BEYOND`). Fewer than 150 are read in two texts that overlap. With
`--encoder`, "both" are counts with the encoder: up to `READ` pairs it reads all (`align_quick`), of more the scored
ones alone, with the counts of all (`align run`). What a system has in the file already stays as it is. With
`--aligner FOLDER`, the counts are those of an aligner that has learned so many pairs before (`align train --config
hmm`), "counts" alone and "both" with the encoder.

Our links have the default rule. eflomal reads lower-cased words, and its directions are merged in the way that is best
for it *on the test*. CPU seconds are without the start of Python, of eflomal those of its command.
`FOLDER/adapted_PAIR.json` is written anew; sizes of `quick` are added to `FOLDER/quick_PAIR.json`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import torch
from peers import MERGES, run_eflomal

from hf_attncal import WordAligner, align_quick
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.statistical import quick_aligner
from hf_attncal.data.corpora import load_parallel
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.io.files import write_json
from hf_attncal.layouts import RESULTS
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import AER, alignment_error_rate, paired_counts

Pairs = list[tuple[str, str]]
SCORED = 150  # pairs of `quick`, and of identical text
READ = 1000  # most pairs that an encoder reads
HANSARDS, DERMIT = ("wpt03-enfr/train.100k.{}.gz",), ("dermit-derm/train.{}.gz",)
# Of each pair: languages, test, training text, text beside the test that has no gold links or another split's.
TEXTS = {
    "wpt03-enfr": ("en", "fr", "wpt03-enfr/test", HANSARDS, ()),
    "dermit-derm": ("de", "rm", "dermit-derm/test", DERMIT, ()),
    "rwth-deen": ("de", "en", "rwth-deen/test", ("multi30k/train.{}.gz", "wmtmix-deen/train.{}.gz"), ()),
    "kftt-jaen": ("ja", "en", "kftt-jaen/test", ("tanaka-enja/train.{}.gz",), ()),
    "golden-enfr": ("en", "fr", "golden-enfr/test", HANSARDS, ()),
    "golden-enes": ("en", "es", "golden-enes/test", (), ()),
    "golden-enpt": ("en", "pt", "golden-enpt/test", (), ()),
    "bicici-deen": ("de", "en", "bicici-deen/dev", ("multi30k/train.{}.gz",), ()),
    "tsinghua-zhen": ("zh", "en", "tsinghua-zhen/test", (), ()),
    "wpt-roen": ("ro", "en", "wpt-roen/test", (), ("wpt-roen/dev.{}",)),
    "ges-ensv": ("en", "sv", "ges-ensv/test", (), ()),
    "czenali-encs": ("en", "cs", "czenali-encs/test", (), ("multi30k/train.{}.gz",)),
} | {
    f"xlwa-en{name}": ("en", name, f"xlwa/en-{name}/test", (), (f"xlwa/en-{name}/silver-train.{{}}",))
    for name in ("it", "hu", "nl", "bg", "sl", "ru")
}

BEYOND = {"rwth-deen": "tatoeba-deen/train.{}.gz"}  # more text of a pair, where `quick` wants it


class Text:
    """The text of a pair of languages under ROOT.

    Args:
        root: the folder of the corpora. name: of `TEXTS`.
        train_pairs: the first so many of the training text; None for all.
    """

    def __init__(self, root: Path, name: str, train_pairs: int | None = None):
        source, target, test, train, beside = TEXTS[name]
        self.gold = Gold.read(*(root / f"{test}.{end}" for end in (source, target, "align")))
        self.files = {end: root / f"{test}.{end}" for end in (source, target, "align")}
        self.corpus = {
            side: [str(root / file.format(language)) for file in train]
            for side, language in (("source", source), ("target", target))
        }
        self.train, self.beside = ([], [])
        for pairs, files in ((self.train, train), (self.beside, beside)):
            for file in files:
                pairs += self.read(root, file, source, target)
        self.train = self.train[:train_pairs]

    def read(self, root: Path, file: str, source: str, target: str) -> Pairs:
        """Return the pairs of a file of text, which is one of `files` from now on."""
        paths = {"source": root / file.format(source), "target": root / file.format(target)}
        self.files |= {f"{file}_{side}": path for side, path in paths.items()}
        text = load_parallel({side: str(path) for side, path in paths.items()})
        return list(zip(text["source"], text["target"], strict=True))


def cpu(of_children: bool = False) -> float:
    """Return the CPU seconds of this process, or of the commands that it has waited for."""
    if not of_children:
        return time.process_time()
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def score(gold: Gold, links: Sequence, merge: str) -> dict:
    """Return AER with its interval, as fractions, of links that were merged in a way."""
    found = alignment_error_rate(gold.links, links, symmetrization=merge, bootstrap=1000, check_indices=False)
    return {name: getattr(found, name) for name in ("aer", "interval", "precision", "recall", "signature")}


def by_eflomal(command: str, gold: Gold, others: Pairs, texts: Sequence[slice] = (slice(None),)) -> tuple[dict, list]:
    """Align gold pairs and others together with eflomal; return its scores, and the links of its best merge.

    `texts` are the gold pairs of each run; a pair of two has the links of the second.
    """
    links: dict[str, list] = {merge: [()] * len(gold.pairs) for merge in MERGES}
    seconds = 0.0
    for part in texts:
        own = gold.pairs[part]
        words = [tuple(side.lower().split() for side in pair) for pair in [*own, *others]]
        before = cpu(of_children=True)
        with tempfile.TemporaryDirectory() as folder:
            run = run_eflomal(command, words, Path(folder))
            seconds += cpu(of_children=True) - before
            for merge, found in links.items():
                found[part] = run.links(merge, 0, len(own))
    scores = {merge: score(gold, found, merge) for merge, found in links.items()}
    best = min(scores, key=lambda merge: scores[merge]["aer"])
    return scores[best] | {"merge": best, "cpu_seconds": seconds}, links[best]


def ours(gold: Gold, links: list, seconds: float, theirs: list | None) -> dict:
    """Return the scores of links of ours, and their distance from eflomal's where these are known."""
    if theirs is None:
        return score(gold, links, "harmonic") | {"cpu_seconds": seconds}
    difference = AER.paired_interval(*paired_counts(gold.links, theirs, links), 1000, 0)
    scored, other = (alignment_error_rate(gold.links, found, check_indices=False).aer for found in (links, theirs))
    against = {"difference": scored - other, "interval": difference}
    return score(gold, links, "harmonic") | {"cpu_seconds": seconds, "against_eflomal": against}


def identical_recall(align, sources: Sequence[str]) -> float:
    """Return the share of words that are linked to themselves where both sides are the same."""
    found = align([(source, source) for source in sources])
    return sum((i, i) in one.links for one in found for i in range(len(one.source))) / sum(
        len(one.source) for one in found
    )


def measure_adapted(args: argparse.Namespace, name: str) -> dict:
    """Return the systems of a pair by name."""
    text = Text(args.data, name, args.train_pairs)
    gold = text.gold
    peer, theirs = by_eflomal(args.eflomal, gold, text.train + text.beside)
    systems = {"eflomal": peer}
    sources = [source for source, _ in gold.pairs[:SCORED]]
    before = cpu()
    found = align_quick([*gold.pairs, *text.train, *text.beside])[: len(gold.pairs)]
    systems["quick"] = ours(gold, [one.links for one in found], cpu() - before, theirs)
    if not text.train:
        systems["quick"]["identical_recall"] = identical_recall(align_quick, sources)
        return {"systems": systems, "files": text.files, "train_pairs": len(text.beside)}
    with tempfile.TemporaryDirectory() as folder:
        data = {"train": text.corpus, "train_pairs": args.train_pairs}
        before = cpu()
        AlignerJob.train(AlignerConfig.make({"preset": "hmm", "data": data, "training": {"output_dir": folder}}))
        aligner, learning = WordAligner.from_pretrained(folder, device="cpu"), cpu() - before
    for system in ("hmm", "adapted"):
        before = cpu()
        adaptation = aligner.adapt(gold.pairs) if system == "adapted" else None
        links = [one.links for one in aligner.align(gold.pairs)]
        systems[system] = ours(gold, links, cpu() - before, theirs)
        if adaptation is None:
            systems[system] |= {"learning_cpu_seconds": learning}
            systems[system]["identical_recall"] = identical_recall(aligner.align, sources)
        else:
            systems[system] |= {"unknown": adaptation.unknown, "weight": adaptation.weight}
    return {"systems": systems, "files": text.files, "train_pairs": len(text.train)}


@cache
def loaded(name: str) -> EncoderPrior:
    """Return an encoder, which is loaded once."""
    return EncoderPrior.from_pretrained(name)


def measure_quick(args: argparse.Namespace, name: str, size: int, kept: dict[str, dict]) -> tuple[dict, dict, int]:
    """Return the systems that align `size` pairs, or all that there are, with those of `kept`; files; the size."""
    text = Text(args.data, name)
    gold = Gold(text.gold.pairs[:SCORED], text.gold.links[:SCORED])
    others, wanted, scored = text.train or text.beside, max(0, size - len(gold.pairs)), len(gold.pairs)
    if wanted > len(others) and name in BEYOND:
        others = others + text.read(args.data, BEYOND[name], *TEXTS[name][:2])
    wanted = min(wanted, len(others))
    others = [others[n * len(others) // wanted] for n in range(wanted)]
    texts = [slice(None)] if size >= scored else [slice(size), slice(scored - size, None)]
    size = min(size, scored + wanted)
    systems, theirs = dict(kept.get(str(size), {})), None
    if "eflomal" not in systems:
        systems["eflomal"], theirs = by_eflomal(args.eflomal, gold, others, texts)
    links: dict[str, list] = {system: [()] * scored for system in ("quick", "both")}
    seconds, encoder = dict.fromkeys(links, 0.0), None
    if args.encoder:
        encoder = loaded(args.encoder)
    for part in texts:
        before = cpu()
        aligner = quick_aligner([*gold.pairs[part], *others])
        links["quick"][part] = [one.links for one in aligner.align(gold.pairs[part])]
        seconds["quick"] += cpu() - before
        if encoder is None:
            continue
        encoder.forget()
        if size <= READ:
            before = cpu()
            aligner = quick_aligner([*gold.pairs[part], *others], encoder=encoder)
        else:
            aligner.use_encoder(encoder)
        links["both"][part] = [one.links for one in aligner.align(gold.pairs[part])]
        seconds["both"] += cpu() - before
    for system in ("quick", "both") if encoder is not None else ("quick",):
        if system not in systems:
            systems[system] = ours(gold, links[system], seconds[system], theirs)
    return systems, text.files, size


def measure_learned(args: argparse.Namespace, name: str) -> tuple[dict, dict]:
    """Return an aligner that has learned other text, alone and with the encoder, and the files."""
    text = Text(args.data, name)
    gold = Gold(text.gold.pairs[:SCORED], text.gold.links[:SCORED])
    aligner, encoder, systems = WordAligner.from_pretrained(args.aligner, device="cpu"), loaded(args.encoder), {}
    encoder.forget()
    learned = json.loads((args.aligner / RESULTS).read_text())
    learned = {key: learned[key] for key in ("command", "commit", "data_sha256", "sentence_pairs")}
    for system in ("counts", "both"):
        aligner.use_encoder(encoder if system == "both" else None)
        before = cpu()
        links = [one.links for one in aligner.align(gold.pairs)]
        systems[system] = ours(gold, links, cpu() - before, None) | {"learned": learned}
    return systems, text.files


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("adapted", "quick"))
    parser.add_argument("names", nargs="+", choices=TEXTS, metavar="PAIR", help=f"of {', '.join(TEXTS)}")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--eflomal", default="eflomal-align", metavar="PATH", help="command of eflomal")
    parser.add_argument("--encoder", metavar="NAME", help="of quick: folder or Hub name of an encoder beside counts")
    parser.add_argument("--aligner", type=Path, metavar="FOLDER", help="of quick: what has learned so many pairs")
    parser.add_argument("--pairs", type=int, nargs="+", default=[200, 1000, 5000, 20000], help="sizes of quick")
    parser.add_argument("--train-pairs", type=int, help="first pairs of the training text; without it, all")
    parser.add_argument("--output", type=Path, default=Path("results/adapting"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in args.names:
        path = args.output / f"{args.what}_{name}.json"
        if args.what == "adapted":
            found = measure_adapted(args, name)
            config = {"pair": name, "train_pairs": found["train_pairs"]}
            write_json(records.record(config, found["files"]) | {"systems": found["systems"]}, path)
            show(name, found["systems"])
            continue
        sizes = json.loads(path.read_text())["sizes"] if path.exists() else {}
        for size in args.pairs:
            if args.aligner is not None:
                systems, files = measure_learned(args, name)
                systems = sizes.get(str(size), {}) | systems
            else:
                systems, files, size = measure_quick(args, name, size, sizes)
            sizes[str(size)] = systems
            sizes = dict(sorted(sizes.items(), key=lambda entry: int(entry[0])))
            write_json(records.record({"pair": name, "scored": SCORED}, files) | {"sizes": sizes}, path)
            show(f"{name}, {size} pairs", systems)


def show(title: str, systems: dict) -> None:
    """Print a line for each system."""
    for system, found in systems.items():
        print(f"{title}: {system} {100 * found['aer']:.1f}, {found['cpu_seconds']:.1f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
