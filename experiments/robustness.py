"""Where a word aligner breaks: long lines, repeated and unseen words, another rule for links; beside eflomal.

    python experiments/robustness.py --data ROOT --pair wpt03-enfr --model NAME=FOLDER --output FILE
    python experiments/robustness.py --data ROOT --pair wpt03-enfr --eflomal PATH --train-pairs 20000 --output FILE
    python experiments/robustness.py --data ROOT --pair wpt03-enfr --model NAME=FOLDER --against FILE --output FILE
    python experiments/robustness.py ... --splits dev    # to choose by: the test files are not read

ROOT has a folder for each corpus; `CORPORA` says which files make a pair. A system is a checkpoint, with the rule
(symmetrisation and threshold) that it is saved with, or eflomal. eflomal learns from text, never from gold links, in
one of two ways:

- "eflomal": the training text and the text to be aligned together, in a run of its own for each length of lines
  (so only the shortest and the longest), as it is usually run;
- "eflomal_withheld": the training text alone; each split is then aligned with what has been learned
  (`eflomal-makepriors`), as a checkpoint aligns it.

Its two directions are merged in the way with the lowest error rate on dev; without a dev set, by grow-diag-final-and.

Of each system and split:

- `joined`: AER where 1, 2, ... consecutive pairs are one line, the links the same; and `joined_difference`, the
  longest lines minus single pairs. Its interval draws lines of the longest kind, on both sides.
- `lengths`: AER by the number of words of the longer side.
- `repeated`: recall of sure links, those of which a word occurs more than once in its side of the line and the others.
- `unseen`: recall of sure links of which a word does not occur in its side of the training text, and the others.
- `rules` of a checkpoint: AER with the rule that it is saved with, with the default rule (what a model has that was
  trained without gold links), and with what is best on dev; `no_gold_minus_dev_chosen` is what gold links are worth.
- `against`: AER minus that of eflomal, and the share of resamples in which it is lower.

Words are compared in lower case, and eflomal gets them so; a checkpoint knows itself what it lower-cases. `links`
holds what was linked of single pairs and of the longest lines. A results file of eflomal can be given to later runs
with `--against`: nothing has to be aligned again.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aligners import SPLITS, Data, named_models
from peers import MERGES, Link, PeerRun, eflomal_priors, run_eflomal

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.aligner_job import SIZES
from hf_attncal.alignment.gold import TUNED, tune_links
from hf_attncal.data.corpora import load_parallel
from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import GoldAlignment, format_links, parse_hypotheses
from hf_attncal.families import FAMILIES
from hf_attncal.files import sha256, write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate, paired_bootstrap, paired_interval

Links = list[frozenset[Link]]

# Words of the longer side.
BINS = {"1-9": range(1, 10), "10-19": range(10, 20), "20-29": range(20, 30), "30-59": range(30, 60)}
BINS["60+"] = range(60, sys.maxsize)
JOINED = (1, 2, 3, 4, 6)
# Of a checkpoint.
RULES = ("saved", "default", "dev_chosen")
# eflomal's way to merge where no dev set chooses one.
DEFAULT_MERGE = "grow-diag-final-and"
EFLOMAL = ("eflomal", "eflomal_withheld")


@dataclass(frozen=True)
class Corpus:
    """The files of a pair under ROOT, `{}` in place of the language.

    Args:
        languages: of source and target.
        train: text, one after the other; none where there are gold links only.
        splits: "dev" and "test", without the end of the name.
    """

    languages: tuple[str, str]
    train: tuple[str, ...]
    splits: dict[str, str]

    def parallel(self, *names: str) -> dict[str, list[str]]:
        """Both sides of the named text."""
        source, target = self.languages
        return {"source": [name.format(source) for name in names], "target": [name.format(target) for name in names]}

    def files(self, split: str) -> dict[str, list[str]]:
        """Text and gold links of a split."""
        stem = self.splits[split]
        return self.parallel(stem + ".{}") | {"gold": [f"{stem}.align"]}


HANSARDS = ("wpt03-enfr/train.100k.{}.gz",)
CORPORA = {
    "wpt03-enfr": Corpus(("en", "fr"), HANSARDS, {"dev": "wpt03-enfr/dev", "test": "wpt03-enfr/test"}),
    "dermit-derm": Corpus(
        ("de", "rm"), ("dermit-derm/train.{}.gz",), {"dev": "dermit-derm/dev", "test": "dermit-derm/test"}
    ),
    "rwth-deen": Corpus(
        ("de", "en"),
        ("tatoeba-deen/train.{}.gz", "multi30k/train.{}.gz", "wmtmix-deen/train.{}.gz"),
        {"dev": "bicici-deen/dev", "test": "rwth-deen/test"},
    ),
    "kftt-jaen": Corpus(("ja", "en"), ("tanaka-enja/train.{}.gz",), {"test": "kftt-jaen/test"}),
    # Another domain and another tokenisation for a model of the Hansards.
    "golden-enfr": Corpus(("en", "fr"), HANSARDS, {"dev": "wpt03-enfr/dev", "test": "golden-enfr/test"}),
    "golden-enes": Corpus(("en", "es"), (), {"test": "golden-enes/test"}),
    "golden-enpt": Corpus(("en", "pt"), (), {"test": "golden-enpt/test"}),
    "wpt-roen": Corpus(("ro", "en"), (), {"dev": "wpt-roen/dev", "test": "wpt-roen/test"}),
    "czenali-encs": Corpus(("en", "cs"), (), {"test": "czenali-encs/test"}),
    "ges-ensv": Corpus(("en", "sv"), (), {"test": "ges-ensv/test"}),
    "tsinghua-zhen": Corpus(("zh", "en"), (), {"test": "tsinghua-zhen/test"}),
} | {
    f"xlwa/en-{language}": Corpus(("en", language), (), {split: f"xlwa/en-{language}/{split}" for split in SPLITS})
    for language in ("bg", "da", "es", "et", "hu", "it", "nl", "pt", "ru", "sl")
}


# ---- joined pairs ----


def join_links(links: Sequence[Iterable[Link]], pairs: Sequence[tuple[str, str]], size: int) -> Links:
    """The links of each line of `size` consecutive pairs; the last line may have fewer."""
    joined: list[set[Link]] = []
    for number, (found, (source, target)) in enumerate(zip(links, pairs, strict=True)):
        if number % size == 0:
            joined.append(set())
            before = (0, 0)
        joined[-1] |= {(i + before[0], j + before[1]) for i, j in found}
        before = before[0] + len(source.split()), before[1] + len(target.split())
    return [frozenset(line) for line in joined]


def join(gold: Gold, size: int) -> Gold:
    """Lines of `size` consecutive pairs with their links."""
    parts = (gold.pairs[begin : begin + size] for begin in range(0, len(gold.pairs), size))
    sure, possible = (
        join_links([getattr(links, kind) for links in gold.links], gold.pairs, size) for kind in ("sure", "possible")
    )
    return Gold(
        [tuple(" ".join(side) for side in zip(*part, strict=True)) for part in parts],
        [GoldAlignment(*kinds) for kinds in zip(sure, possible, strict=True)],
    )


# ---- measures ----


def score(gold: Gold, links: Links, args: argparse.Namespace, rule: str) -> AlignmentScore:
    # The indices of gold have been checked where it was read; a few lines of it may look odd.
    return alignment_error_rate(
        gold.links, links, symmetrization=rule, bootstrap=args.bootstrap, seed=args.seed, check_indices=False
    )


def compare(gold: Gold, links: Links, other: Links, args: argparse.Namespace) -> dict:
    """AER of `links` minus that of `other`, its 95 % interval, and the share of resamples in which it is lower."""
    first, second = (alignment_error_rate(gold.links, found, check_indices=False).aer for found in (other, links))
    resamples = {"bootstrap": args.bootstrap, "seed": args.seed}
    return {
        "difference": second - first,
        "interval": paired_interval(gold.links, other, links, **resamples),
        "lower": paired_bootstrap(gold.links, other, links, **resamples),
    }


def by_length(gold: Gold, links: Links) -> dict[str, tuple[Gold, Links]]:
    """The pairs of each of `BINS` that has any, and their links."""
    lengths = [max(len(side.split()) for side in pair) for pair in gold.pairs]
    found = {}
    for name, words in BINS.items():
        if rows := [row for row, length in enumerate(lengths) if length in words]:
            some = Gold([gold.pairs[row] for row in rows], [gold.links[row] for row in rows])
            found[name] = some, [links[row] for row in rows]
    return found


def recalls(
    gold: Gold, links: Links, marks: Callable[[int, list[str]], list[bool]], names: tuple[str, str]
) -> dict[str, dict]:
    """Recall of the sure links of which a word is marked (the first of `names`), and of the others.

    Args:
        gold, links: pairs, and what was found in each.
        marks: of the words of a side, which is 0 or 1, in lower case, whether each is marked.
        names: of the two kinds.
    """
    counts = {name: Counter() for name in names}
    for pair, annotated, found in zip(gold.pairs, gold.links, links, strict=True):
        source, target = (marks(side, text.lower().split()) for side, text in enumerate(pair))
        for i, j in annotated.sure:
            kind = counts[names[0] if source[i] or target[j] else names[1]]
            kind["sure"] += 1
            kind["sure_hits"] += (i, j) in found
    return {
        name: {
            "recall": kind["sure_hits"] / kind["sure"] if kind["sure"] else None,
            "sure": kind["sure"],
            "sure_hits": kind["sure_hits"],
        }
        for name, kind in counts.items()
    }


def repeated(_: int, words: list[str]) -> list[bool]:
    """Whether each word occurs more than once."""
    counts = Counter(words)
    return [counts[word] > 1 for word in words]


def vocabularies(train: Iterable[tuple[str, str]]) -> tuple[set[str], set[str]]:
    """The words of both sides in lower case."""
    known: tuple[set[str], set[str]] = (set(), set())
    for pair in train:
        for words, text in zip(known, pair, strict=True):
            words.update(text.lower().split())
    return known


def measures(
    gold: Gold, found: dict[int, Links], known: tuple[set[str], set[str]] | None, args: argparse.Namespace, rule: str
) -> dict:
    """Everything about one system and split that needs no other system.

    Args:
        gold: single pairs.
        found: links of each line, by the number of pairs in a line.
        known: words of the training text; None without one.
        args: options of the script.
        rule: symmetrisation, for the signatures.
    """
    longest = max(found)
    lines = {size: join(gold, size) for size in found}
    alone = join_links(found[1], gold.pairs, longest)
    result = {
        "joined": {str(size): dataclasses.asdict(score(lines[size], found[size], args, rule)) for size in found},
        "joined_difference": {"pairs": [1, longest], **compare(lines[longest], found[longest], alone, args)},
        "lengths": {
            name: dataclasses.asdict(score(*some, args, rule)) for name, some in by_length(gold, found[1]).items()
        },
        "repeated": {
            str(size): recalls(lines[size], found[size], repeated, ("repeated", "once")) for size in (1, longest)
        },
        "links": {str(size): [format_links(line) for line in found[size]] for size in (1, longest)},
    }
    if known is not None:

        def unseen(side: int, words: list[str]) -> list[bool]:
            return [word not in known[side] for word in words]

        result["unseen"] = recalls(gold, found[1], unseen, ("unseen", "seen"))
    return result


# ---- systems ----


@dataclass(frozen=True)
class System:
    """Links by split and number of pairs in a line, and what else is to be stated."""

    found: dict[str, dict[int, Links]]
    row: dict


def run_checkpoint(folder: str, data: Data, args: argparse.Namespace) -> System:
    """A checkpoint with its own rule, and what other rules come to."""
    aligner = WordAligner.from_pretrained(folder, device=args.device)
    if args.uncut:
        aligner.source.longest_uncut = None
    start = time.perf_counter()
    aligned = {
        split: {size: aligner.align(join(data.gold[split], size).pairs) for size in args.joined}
        for split in args.splits
    }
    seconds = time.perf_counter() - start
    found = {
        split: {size: [frozenset(line.links) for line in lines] for size, lines in sizes.items()}
        for split, sizes in aligned.items()
    }
    first = aligned[args.splits[0]][1][0]
    row = {
        "symmetrization": first.symmetrization,
        "threshold": first.threshold,
        "parameters": aligner.model.num_parameters(),
        "seconds": seconds,
    }
    if rules := compare_rules(aligner, data, args):
        row["rules"] = rules
    return System(found, row)


def default_rule(config) -> tuple[str, float]:
    """How an aligner of this family links where no annotated pairs have said otherwise: merging and threshold."""
    family = FAMILIES[config.model_type]
    fields = family.config_class(**SIZES[family.presets[0]]["model"])
    return fields.symmetrization, fields.alignment_threshold


def compare_rules(aligner: WordAligner, data: Data, args: argparse.Namespace) -> dict | None:
    """AER of each split with the saved rule, the default one and, where there is a dev set, what is best on it.

    None for a model without such a rule (an encoder-decoder).
    """
    config = aligner.model.config
    if not hasattr(config, "alignment_threshold"):
        return None
    # Those of `RULES`.
    rules = {"saved": (config.symmetrization, config.alignment_threshold), "default": default_rule(config)}
    if "dev" in data.gold:
        rules["dev_chosen"] = tune_links(aligner.model, aligner.tokenizer, data.gold["dev"], TUNED)[:2]
    rows: dict = {}
    for name, (method, threshold) in rules.items():
        rows[name] = {"symmetrization": method, "threshold": threshold, "aer": {}}
        for split in args.splits:
            gold = data.gold[split]
            aligned = aligner.align(gold.pairs, threshold=threshold, symmetrize=method)
            links = [frozenset(line.links) for line in aligned]
            rows[name]["aer"][split] = alignment_error_rate(gold.links, links, check_indices=False).aer
    if "dev_chosen" in rows:
        rows["no_gold_minus_dev_chosen"] = {
            split: rows["default"]["aer"][split] - rows["dev_chosen"]["aer"][split] for split in args.splits
        }
    return rows


def run_peer(command: str, data: Data, args: argparse.Namespace, withheld: bool) -> System:
    """eflomal, with the text to be aligned among what it learns from or without it."""
    train = data.train
    sizes = args.joined if withheld else sorted({1, max(args.joined)})
    with tempfile.TemporaryDirectory() as temporary:

        def run(train: list, gold: dict[str, Gold], priors: Path | None = None) -> tuple[PeerRun, Data]:
            text = dataclasses.replace(data, train=train, gold=gold)
            return run_eflomal(command, text.words(), Path(tempfile.mkdtemp(dir=temporary)), priors), text

        runs: dict[tuple[str, int], tuple[PeerRun, Data]] = {}
        seconds = 0.0
        if withheld:
            learned, _ = run(train, {})
            seconds += learned.seconds
            priors = eflomal_priors(command, learned)
        for size in sizes:
            gold = {split: join(some, size) for split, some in data.gold.items()}
            if withheld:
                runs |= {(split, size): run([], {split: some}, priors) for split, some in gold.items()}
            else:
                together = run(train, gold)
                runs |= {(split, size): together for split in gold}
        seconds += sum(one.seconds for one in {id(one): one for one, _ in runs.values()}.values())

        def links(split: str, size: int, method: str) -> Links:
            one, text = runs[split, size]
            return list(one.links(method, *text.rows(split)))

        row = {"command": runs[args.splits[0], 1][0].command, "symmetrization": DEFAULT_MERGE, "seconds": seconds}
        if "dev" in data.gold:
            dev = data.gold["dev"].links
            row["dev_aer"] = {
                method: alignment_error_rate(dev, links("dev", 1, method), check_indices=False).aer
                for method in MERGES
            }
            row["symmetrization"] = min(row["dev_aer"], key=row["dev_aer"].__getitem__)
        row["chosen_on"] = "dev" if "dev" in data.gold else None
        row["learned_from"] = (["train"] if train else []) + ([] if withheld else list(data.gold))
        found = {split: {size: links(split, size, row["symmetrization"]) for size in sizes} for split in args.splits}
    return System(found, row)


# ---- the job ----


def read_data(args: argparse.Namespace) -> Data:
    """Training text and the splits: those to be measured, and dev, which chooses.

    Raises:
        ValueError: files that do not fit; OSError where one is missing.
    """
    corpus = CORPORA[args.pair]
    files: dict[str, Path] = {}

    def place(names: dict[str, list[str]]) -> dict[str, list[str]]:
        files.update({name: Path(args.data, name) for some in names.values() for name in some})
        return {kind: [str(files[name]) for name in some] for kind, some in names.items()}

    train = []
    if corpus.train:
        text = load_parallel(place(corpus.parallel(*corpus.train)))
        if args.train_pairs is not None:
            text = text.select(range(min(args.train_pairs, len(text))))
        train = list(zip(text["source"], text["target"], strict=True))
    gold = {}
    for split in corpus.splits:
        if split == "dev" or split in args.splits:
            names = place(corpus.files(split))
            (links,) = names.pop("gold")
            gold[split] = Gold.load(names, links)
    return Data(train, gold, True, files)


def read_others(args: argparse.Namespace, data: Data) -> dict[str, dict]:
    """The systems of `--against`.

    Raises:
        ValueError: it was made from other pairs or links; OSError where it is missing.
    """
    if args.against is None:
        return {}
    result = json.loads(args.against.read_text(encoding="utf-8"))
    for split in args.splits:
        for name in (name for some in CORPORA[args.pair].files(split).values() for name in some):
            if result["data_sha256"].get(name) != sha256(data.files[name]):
                raise ValueError(f"--against {args.against} was not made with this {name}: run eflomal on it.")
    return result["systems"]


def measure(args: argparse.Namespace) -> dict:
    """Run every system; returns what the JSON file holds.

    Raises:
        ValueError: files, commands or names that are not there or do not fit.
    """
    models = named_models(args.model)
    if taken := models.keys() & set(EFLOMAL):
        raise ValueError(f"--model: {sorted(taken)[0]} is the name of another aligner.")
    command = args.eflomal and shutil.which(args.eflomal)
    if args.eflomal and not command:
        raise ValueError(f"--eflomal: there is no command {args.eflomal}.")
    if not models and not command:
        raise ValueError("Nothing to measure: give --model NAME=FOLDER or --eflomal.")
    data = read_data(args)
    rows = read_others(args, data)
    others = {
        name: {
            split: {int(size): parse_hypotheses(lines) for size, lines in row["splits"][split]["links"].items()}
            for split in args.splits
            if split in row["splits"]
        }
        for name, row in rows.items()
    }
    systems = {}
    if command:
        systems["eflomal"] = run_peer(command, data, args, withheld=False)
        if data.train:
            systems["eflomal_withheld"] = run_peer(command, data, args, withheld=True)
        others |= {name: system.found for name, system in systems.items()}
    systems |= {name: run_checkpoint(folder, data, args) for name, folder in models.items()}
    known = vocabularies(data.train) if data.train else None
    results = {}
    for name, system in systems.items():
        splits = {
            split: measures(data.gold[split], found, known, args, system.row["symmetrization"])
            for split, found in system.found.items()
        }
        for split, found in system.found.items() if name in models else ():
            splits[split]["against"] = {
                other: {
                    str(size): compare(join(data.gold[split], size), found[size], links[split][size], args)
                    for size in sorted(found.keys() & links[split].keys())
                }
                for other, links in others.items()
                if split in links
            }
        results[name] = system.row | {"splits": splits}
    config = {
        "experiment": "robustness",
        "pair": args.pair,
        "lowercase": data.lowercase,
        "train_pairs": len(data.train),
        "splits": args.splits,
        "joined": args.joined,
        "uncut": args.uncut,
        "against": args.against and args.against.name,
        "bootstrap": args.bootstrap,
        "seed": args.seed,
    }
    return records.record(config, data.files, args.device if models else None) | {"systems": results}


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", required=True, metavar="ROOT", help="folder that the folders of the corpora are in")
    parser.add_argument("--pair", required=True, choices=CORPORA, metavar="PAIR", help=", ".join(CORPORA))
    parser.add_argument("--splits", nargs="+", choices=SPLITS, help="what is measured; without it, what there is")
    parser.add_argument("--train-pairs", type=int, metavar="N", help="only the first training pairs")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER", help="a checkpoint")
    parser.add_argument("--device", default="cpu", help="of the checkpoints")
    parser.add_argument("--uncut", action="store_true", help="checkpoints align every line as a whole, however long")
    parser.add_argument("--eflomal", metavar="PATH", help="the command eflomal-align")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="results of eflomal that checkpoints are compared to"
    )
    parser.add_argument("--joined", type=int, nargs="+", default=list(JOINED), help="numbers of pairs in a line")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for the 95 %% intervals")
    parser.add_argument("--seed", type=int, default=0, help="of the resamples")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON file")
    return parser


def main(arguments: list[str] | None = None) -> dict:
    parser = make_parser()
    args = parser.parse_args(arguments)
    args.joined = sorted(set(args.joined))
    if args.joined[0] != 1 or len(args.joined) == 1:
        parser.error(f"--joined must be 1 and larger numbers, got {args.joined}")
    for name in ("train_pairs", "bootstrap"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    there = CORPORA[args.pair].splits
    args.splits = [split for split in SPLITS if split in (args.splits or there)]
    if missing := [split for split in args.splits if split not in there]:
        parser.error(f"--splits: {args.pair} has no {missing[0]}, only {list(there)}")
    try:
        result = measure(args)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except RuntimeError as error:
        sys.exit(f"{error}")
    write_json(result, args.output)
    print(f"written: {args.output}")
    return result


if __name__ == "__main__":
    main()
