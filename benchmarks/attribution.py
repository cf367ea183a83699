"""What analysis costs: each method of attribution, and what is measured over a corpus, on generated pairs against a
plain forward pass over the same batches; and the memory that it takes as the corpus grows.

    python benchmarks/attribution.py --threads 1
    python benchmarks/attribution.py --variants alti occlusion --model baseline --batch 8 --repeats 3

A forward pass is teacher-forced, without gradients, and tokenises the pairs as the methods do; the model is random.
What perturbations cost grows with the length of the sentences; a `posterior` costs what its aligner
does. `observations` are the sums over a corpus (`report.observations`), `faithfulness` is that of attention and of
random scores under all operators. Memory is the peak of a process that observes so many pairs and
attributes them by ALTI+, above that of one that does so with the fewest.
"""

import argparse
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import common
import torch
from rich.progress import track
from transformers import PreTrainedModel

from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.inference.reading import batches_of_pairs, teacher_forced
from hf_attncal.report.attribution import METHODS, attribute, word_scores
from hf_attncal.report.judged_faithfulness import judge_faithfulness
from hf_attncal.report.observations import observe

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from english_german import generate_pairs

OBSERVATIONS, FAITHFULNESS = "observations", "faithfulness"
TIMED = [*(name for name in METHODS if name != "posterior"), OBSERVATIONS, FAITHFULNESS]
GROWING = (250, 1000, 4000)  # pairs


class Corpus:
    """Generated pairs of sentences, and a tokenizer trained on others."""

    def __init__(self, args: argparse.Namespace):
        lines = [" ".join(side) for pair in generate_pairs(500, seed=args.seed) for side in pair[:2]]
        self.tokenizer = train_bpe_tokenizer(lines, vocab_size=300)
        pairs = generate_pairs(args.pairs, seed=args.seed + 1)
        self.sources, self.targets = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
        self.batch_size = args.batch

    @torch.no_grad()
    def forward(self, model: PreTrainedModel) -> None:
        """Predict all targets."""
        texts = (self.tokenizer, self.sources, self.targets)
        for _, batch in batches_of_pairs(model, *texts, batch_size=self.batch_size):
            inputs, _ = teacher_forced(model, batch)
            model(**inputs, use_cache=False)

    def analyze(self, model: PreTrainedModel, name: str) -> None:
        """What is timed under a name."""
        texts = (model, self.tokenizer, self.sources, self.targets)
        if name == OBSERVATIONS:
            observe(*texts, alignments=True, batch_size=self.batch_size)
        elif name == FAITHFULNESS:
            scores = {of: word_scores(*texts, of, batch_size=self.batch_size) for of in ("attention", "random")}
            options = {"bootstrap": 0, "batch_size": self.batch_size}
            judge_faithfulness(*texts, scores, kind="reference", **options)
        else:
            self.attribute(model, name)

    def attribute(self, model: PreTrainedModel, method: str) -> None:
        """Attribute all predictions."""
        texts = (self.tokenizer, self.sources, self.targets)
        found = sum(1 for _ in attribute(model, *texts, method, batch_size=self.batch_size))
        if found != len(self.sources):
            raise RuntimeError(f"expected {len(self.sources)} attributions, got {found}")

    def mean_length(self) -> float:
        """Tokens of a side of a pair."""
        tokens = self.tokenizer([*self.sources, *self.targets])["input_ids"]
        return sum(map(len, tokens)) / len(tokens)


def peaks(args: argparse.Namespace) -> dict[str, float]:
    """Pairs -> bytes by which the peak of a process that analyses so many is above that of the fewest."""
    found = {}
    for pairs in GROWING:
        command = [sys.executable, __file__, *sys.argv[1:], "--measure-memory-of", str(pairs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[pairs] = json.loads(done.stdout.splitlines()[-1])
    return {str(pairs): peak - found[GROWING[0]] for pairs, peak in found.items()}


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=16, length=0, repeats=3, variants=TIMED)
    parser.add_argument(
        "--model", choices=common.VARIANTS, default="gated", help="contributions need a calibrated one"
    )
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--measure-memory-of", type=int, help=argparse.SUPPRESS)
    parser.set_defaults(d_model=128, layers=3, heads=4, ffn=512, vocab=8000, warmup=1)
    args = parser.parse_args()
    common.set_up(args)
    if args.measure_memory_of:
        args.pairs = args.measure_memory_of
        corpus, model = Corpus(args), common.our_model(args, args.model).eval()
        for name in (OBSERVATIONS, "alti"):
            corpus.analyze(model, name)
        print(common.peak_resident())
        return
    corpus, model = Corpus(args), common.our_model(args, args.model).eval()
    result = common.record("attribution", args, mean_length=corpus.mean_length())
    variants, rows = {}, []
    for name in track(args.variants, description="methods"):
        runs = partial(corpus.forward, model), partial(corpus.analyze, model, name)
        forward, seconds = common.in_turn(args, *runs)
        ratio = common.spread([o / f for f, o in zip(forward, seconds, strict=True)])
        variants[name] = {"forward_seconds": forward, "seconds": seconds, "over_forward": ratio}
        rows.append([name, f"{ratio['median']:.2f}", f"{ratio['min']:.2f} - {ratio['max']:.2f}"])
    title = f"Times of a forward pass, {args.family} {args.model}, {args.pairs} pairs, {args.device}"
    common.show(title, ["method", "over forward", "min - max"], rows)
    result["variants"] = variants
    result["memory_growth"] = peaks(args)
    common.show(
        "Memory above that of the fewest pairs",
        ["pairs", "MB"],
        [[pairs, f"{grown / 1e6:.1f}"] for pairs, grown in result["memory_growth"].items()],
    )
    common.save(args, result)


if __name__ == "__main__":
    main()
