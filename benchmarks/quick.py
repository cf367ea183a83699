"""CPU seconds and memory of `align_quick` with an encoder: in bfloat16 and float32, beside what else does such a job.

    python benchmarks/quick.py --source train.en --target train.fr --encoder NAME --eflomal eflomal-align
    python benchmarks/quick.py --source train.en --target train.fr --encoder NAME --pairs 50 --repeats 1  # a trial

Nothing is known of a pair before each run: the encoder reads it, and counts learn from it. "quick" are the counts
alone, "awesome" is the rule of awesome-align on the same encoder in float32: all layers run, the states of the 8th,
both directions' softmax above 0.001. eflomal makes both directions of the links, without merging them. The systems
run in turn. `start_cpu_seconds` is the loading of the encoder, `memory_megabytes` the most that the process had beside
the imports when it had aligned in bfloat16.
"""

import argparse
import resource
import shlex
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import common
import torch
from transformers import AutoModel, AutoTokenizer

from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.encoder_reader import EncoderReader
from hf_attncal.alignment.statistical import quick_aligner
from hf_attncal.data.batching import batches_by_length
from hf_attncal.io.files import read_lines, sha256
from hf_attncal.layouts import DEFAULT_ENCODER

Pairs = list[tuple[str, str]]


def seconds_of(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    before = time.process_time()
    run()
    return time.process_time() - before


def helped(prior: EncoderPrior, pairs: Pairs) -> None:
    """Align pairs with an encoder that has read nothing yet."""
    prior.forget()
    quick_aligner(pairs, encoder=prior).align(pairs)


@torch.no_grad()
def by_awesome(reader: EncoderReader, pairs: Pairs) -> int:
    """Link tokens whose states of layer 8 have both softmaxes above 0.001; return how many links there are."""
    links = 0
    sides = [reader.tokenize([pair[side] for pair in pairs]) for side in (0, 1)]
    lengths = [(len(source.ids), len(target.ids)) for source, target in zip(*sides, strict=True)]
    for batch in batches_by_length(lengths, 256, 4096):
        states = [reader.states([side[row].ids for row in batch])[8] for side in sides]
        for row, pair in enumerate(batch):
            source, target = (side[row, :length] for side, length in zip(states, lengths[pair], strict=True))
            scores = source @ target.mT
            links += int((torch.minimum(scores.softmax(0), scores.softmax(1)) > 0.001).sum())
    return links


def by_eflomal(command: str, pairs: Pairs) -> float:
    """Return the CPU seconds of eflomal for the pairs."""
    with tempfile.TemporaryDirectory() as folder:
        for side in (0, 1):
            lines = "".join(f"{pair[side].lower()}\n" for pair in pairs)
            Path(folder, f"text{side}").write_text(lines, encoding="utf-8")
        text = ["-s", f"{folder}/text0", "-t", f"{folder}/text1"]
        links = ["-f", f"{folder}/forward", "-r", f"{folder}/backward", "--overwrite"]
        return common.cpu_seconds([*shlex.split(command), *text, *links])


def _peak_memory() -> int:
    """Return the most memory in bytes that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(args: argparse.Namespace, pairs: Pairs) -> dict:
    """Return what a benchmark file says of the pairs."""
    imports = _peak_memory()
    before = time.process_time()
    prior = EncoderPrior.from_pretrained(args.encoder)
    start = time.process_time() - before
    helped(prior, pairs)
    memory = _peak_memory() - imports
    exact = EncoderPrior.from_pretrained(args.encoder, dtype=torch.float32)
    model, tokenizer = AutoModel.from_pretrained(args.encoder), AutoTokenizer.from_pretrained(args.encoder)
    reader = EncoderReader(model.eval(), tokenizer)
    systems = {
        "both": lambda: seconds_of(lambda: helped(prior, pairs)),
        "float32": lambda: seconds_of(lambda: helped(exact, pairs)),
        "quick": lambda: seconds_of(lambda: quick_aligner(pairs).align(pairs)),
        "awesome": lambda: seconds_of(lambda: by_awesome(reader, pairs)),
    }
    if args.eflomal is not None:
        systems["eflomal"] = lambda: by_eflomal(args.eflomal, pairs)
    seconds = {name: [] for name in systems}
    for number in range(args.repeats):
        for name in sorted(systems, reverse=bool(number % 2)):
            seconds[name].append(systems[name]())
            print(f"{name}: {len(pairs) / seconds[name][-1]:.0f} pairs a CPU second", flush=True)
    words = sum(len(side.split()) for pair in pairs for side in pair)
    return {
        "words_of_a_pair": words / len(pairs),
        "start_cpu_seconds": start,
        "memory_megabytes": memory / 1e6,
        "pairs_per_cpu_second": {
            name: common.spread([len(pairs) / one for one in found]) for name, found in seconds.items()
        },
        "speed_ratio": {
            name: common.spread([other / ours for other, ours in zip(found, seconds["both"], strict=True)])
            for name, found in seconds.items()
            if name != "both"
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--source", required=True, help="source sentences, one a line")
    parser.add_argument("--target", required=True, help="target sentences")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER[0], metavar="NAME", help="folder or Hub name")
    parser.add_argument("--pairs", type=int, default=500, help="first pairs of them")
    parser.add_argument("--eflomal", metavar="COMMAND", help="eflomal-align; without it, ours alone")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/benchmark_quick_cpu.json")
    args = parser.parse_args()
    args.device = "cpu"
    torch.set_num_threads(args.threads)
    corpus = {name: Path(name).name for name in (args.source, args.target)}
    stated = {"source": corpus[args.source], "target": corpus[args.target], "encoder": Path(args.encoder).name}
    result = common.record("quick", argparse.Namespace(**vars(args) | stated | {"eflomal": bool(args.eflomal)}))
    result["data_sha256"] = {file: sha256(Path(name)) for name, file in corpus.items()}
    pairs = list(zip(*(islice(read_lines(name), args.pairs) for name in corpus), strict=True))
    common.save(args, result | measure(args, pairs))


if __name__ == "__main__":
    main()
