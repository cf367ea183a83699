"""Pairs a CPU second that the network of the size `small` aligns, beside counts on the same pairs.

    python benchmarks/network.py --source train.en --target train.fr
    python benchmarks/network.py --source train.en --target train.fr --pairs 20 --rounds 1    # does it run?

From text to links (`WordAligner.align`), on one thread, in float32 and in bfloat16. Every round times all of them in
turn, in CPU seconds of the process: what a clock shows depends on what else the machine does. A ratio is one of times
of the same round. The network is initialised at random, which changes nothing in what it computes; its vocabulary is
that of the first `--vocabulary-pairs`. The counts are those of `align_quick`.
"""

import argparse
import time
from itertools import islice
from pathlib import Path

import common
import torch

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.aligner_job import SIZES
from hf_attncal.alignment.statistical import quick_aligner
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.io.files import read_lines, sha256
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.modeling_mask_align import MaskAlignModel


def network(tokenizer, vocab_size: int | None = None, dtype: torch.dtype = torch.float32) -> WordAligner:
    """A network of the size `small` with random weights; its vocabulary is that of the tokenizer, or larger."""
    fields = {"vocab_size": vocab_size or len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(1)
    return WordAligner(MaskAlignModel(MaskAlignConfig(**SIZES["small"]["model"] | fields)).to(dtype), tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--source", required=True, help="source sentences, one a line")
    parser.add_argument("--target", required=True, help="target sentences")
    parser.add_argument("--pairs", type=int, default=500, help="first pairs of them, which are aligned")
    parser.add_argument("--vocabulary-pairs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/benchmark_network_cpu.json")
    args = parser.parse_args()
    args.device, args.threads = "cpu", 1
    torch.set_num_threads(1)
    # Where the files are does not matter, and the results file states no places of this machine.
    corpus = {name: Path(name).name for name in (args.source, args.target)}
    stated = {"source": corpus[args.source], "target": corpus[args.target]}
    result = common.record("network", argparse.Namespace(**vars(args) | stated))
    result["data_sha256"] = {file: sha256(Path(name)) for name, file in corpus.items()}
    sides = [list(islice(read_lines(name), max(args.pairs, args.vocabulary_pairs))) for name in corpus]
    pairs = list(zip(*(side[: args.pairs] for side in sides), strict=True))
    lines = [line.lower() for side in sides for line in side[: args.vocabulary_pairs]]
    tokenizer = train_bpe_tokenizer(lines, SIZES["small"]["tokenizer"]["vocab_size"])
    aligners = {
        "hmm": quick_aligner(pairs),
        "float32": network(tokenizer),
        "bfloat16": network(tokenizer, dtype=torch.bfloat16),
    }
    seconds: dict[str, list[float]] = {name: [] for name in aligners}
    for number in range(args.rounds + 1):
        for name, aligner in aligners.items():
            start = time.process_time()
            aligner.align(pairs)
            if number:  # the first round warms up
                seconds[name].append(time.process_time() - start)
    result["words_a_side"] = sum(len(side.split()) for pair in pairs for side in pair) / 2 / len(pairs)
    result["pairs_per_cpu_second"] = {
        name: common.spread([len(pairs) / second for second in of_rounds]) for name, of_rounds in seconds.items()
    }
    result["times_as_fast_as_float32"] = {
        name: common.spread([slow / fast for slow, fast in zip(seconds["float32"], of_rounds, strict=True)])
        for name, of_rounds in seconds.items()
    }
    for name, speed in result["pairs_per_cpu_second"].items():
        print(f"{name}: {speed['median']:.0f} pairs a CPU second")
    common.save(args, result)


if __name__ == "__main__":
    main()
