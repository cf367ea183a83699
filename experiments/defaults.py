"""What the defaults come to by the amount of text: a translation model or an aligner from a corpus's first pairs.

    python experiments/defaults.py translation --data ROOT --corpus wpt03-enfr --pairs 2000
    python experiments/defaults.py aligner --data ROOT --corpus wpt03-enfr --pairs 2000 --size hmm

ROOT has a folder for each corpus. Nothing but the number of pairs sets up a run: a translation model has
`training.defaults.translation_defaults`, an aligner what its size has, and it links by the default rule, as without
gold links. BLEU is that of the text as it is, in tokens; an aligner lower-cases the text, as configs/aligner does.

The defaults themselves are chosen on the first pairs of dev, without the test text, and written elsewhere:

    python experiments/defaults.py translation ... --dev-pairs 500 --output FILE model.dropout=0.2
"""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

from committed import RESULTS
from robustness import CORPORA, HANSARDS, Corpus

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.aligner_job import SIZES, AlignerConfig, AlignerJob
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.data.corpora import load_parallel
from hf_attncal.data.gold import Gold
from hf_attncal.files import sha256, write_json, write_text
from hf_attncal.training.settings_yaml import apply_overrides
from hf_attncal.training.translation import TranslationConfig, train_translation

# To translate; the splits are whole names here.
TEXTS = {
    "wpt03-enfr": Corpus(
        ("en", "fr"), HANSARDS, {"dev": "wpt03-enfr/mt-valid.{}.gz", "test": "wpt03-enfr/mt-test.{}.gz"}
    ),
    "tatoeba-deen": Corpus(
        ("de", "en"),
        ("tatoeba-deen/train.{}.gz",),
        {"dev": "tatoeba-deen/valid.{}", "test": "tatoeba-deen/test.{}"},
    ),
    "multi30k": Corpus(
        ("en", "de"),
        ("multi30k/train.{}.gz",),
        {"dev": "multi30k/val.{}", "test": "multi30k/test_2016_flickr.{}"},
    ),
}
# To align: those with text to learn from and gold links of two splits.
GOLD = {name: corpus for name, corpus in CORPORA.items() if corpus.train and len(corpus.splits) == 2}
BOOTSTRAP = 1000


def first_pairs(
    args: argparse.Namespace, names: dict[str, list[str]], split: str, pairs: int | None
) -> dict[str, str]:
    """Write the first pairs of a text into `args.folder`, all without `pairs`; its entry of the section `data`.

    Raises:
        ValueError: the text has fewer.
    """
    text = load_parallel({side: [str(Path(args.data, name)) for name in some] for side, some in names.items()})
    if pairs is not None:
        if pairs > len(text):
            raise ValueError(f"{names['source']} has {len(text)} pairs, fewer than the {pairs} that were asked for.")
        text = text.select(range(pairs))
    entry = {}
    for side in names:
        entry[side] = f"{split}.{side}"
        write_text("".join(f"{line or ''}\n" for line in text[side]), args.folder / entry[side])
    return entry


def translate(args: argparse.Namespace) -> dict[str, Any]:
    """Train and score a translation model."""
    corpus = TEXTS[args.corpus]
    values: dict[str, Any] = {"preset": "small", "evaluation": {"bleu_tokenize": "none"}}
    values["training"] = {"output_dir": str(args.folder / "model"), "seed": args.seed}
    values["data"] = {
        "root": str(args.folder),
        "train": first_pairs(args, corpus.parallel(*corpus.train), "train", args.pairs),
        "dev": first_pairs(args, corpus.parallel(corpus.splits["dev"]), "dev", args.dev_pairs),
    }
    if args.dev_pairs is None:
        values["data"]["test"] = first_pairs(args, corpus.parallel(corpus.splits["test"]), "test", None)
    return train_translation(TranslationConfig.make(apply_overrides(values, args.settings)))


def align(args: argparse.Namespace) -> dict[str, Any]:
    """Train a word aligner without gold links, then score it."""
    corpus = GOLD[args.corpus]
    values = {
        "data": {
            "root": str(args.folder),
            "lowercase": True,
            "train": first_pairs(args, corpus.parallel(*corpus.train), "train", args.pairs),
        },
        "model": {"size": args.size},
        "training": {"output_dir": str(args.folder / "model"), "seed": args.seed},
    }
    results = AlignerJob.train(AlignerConfig.make(apply_overrides(values, args.settings)))
    aligner = WordAligner.from_pretrained(str(args.folder / "model"))
    for split in corpus.splits if args.dev_pairs is None else ["dev"]:
        names = corpus.files(split)
        files = {name: Path(args.data, name) for some in names.values() for name in some}
        (links,) = names.pop("gold")
        gold = Gold.load({side: [str(files[name]) for name in some] for side, some in names.items()}, files[links])
        results[split] = dataclasses.asdict(score_aligner(aligner, gold, bootstrap=BOOTSTRAP))
        results["data_sha256"] |= {name: sha256(path) for name, path in files.items()}
    return results


JOBS = {"translation": (translate, TEXTS), "aligner": (align, GOLD)}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Train and score; returns what the JSON file holds.

    Raises:
        ValueError: settings or files that do not fit; OSError where one is missing.
    """
    job, _ = JOBS[args.job]
    with tempfile.TemporaryDirectory(prefix="defaults-") as folder:
        args.folder = Path(folder)
        begin = time.perf_counter()
        results = job(args)
        results["seconds"] = time.perf_counter() - begin
    named = {"experiment": "defaults", "job": args.job, "corpus": args.corpus, "pairs": args.pairs}
    results["config"] = named | results["config"]
    return results


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--data", required=True, metavar="ROOT", help="folder that the folders of the corpora are in")
    parser.add_argument("--corpus", required=True, metavar="NAME", help=", ".join(dict.fromkeys([*TEXTS, *GOLD])))
    parser.add_argument("--pairs", required=True, type=int, metavar="N", help="training pairs: the first so many")
    parser.add_argument("--size", choices=SIZES, default="small", help="of an aligner")
    parser.add_argument("--seed", type=int, default=1, help="of training")
    parser.add_argument(
        "--dev-pairs", type=int, metavar="N", help="score the first so many of dev (an aligner: all), and no test text"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file; without it, in results/defaults")
    parser.add_argument("settings", nargs="*", metavar="section.key=value", help="what is not to be the default")
    return parser


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = make_parser()
    args = parser.parse_intermixed_args(arguments)
    _, corpora = JOBS[args.job]
    if args.corpus not in corpora:
        parser.error(f"--corpus of {args.job} must be one of {', '.join(corpora)}, got {args.corpus}")
    if args.output is None and (args.settings or args.dev_pairs is not None):
        parser.error("--output must be given: settings or --dev-pairs do not make a result of the defaults")
    suffix = f"_{args.size}" if args.job == "aligner" else ""
    output = args.output or RESULTS / "defaults" / f"{args.job}_{args.corpus}_{args.pairs}{suffix}.json"
    try:
        result = measure(args)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    write_json(result, output)
    print(f"written: {output}")
    return result


if __name__ == "__main__":
    main()
