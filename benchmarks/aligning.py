"""Speed and memory of the word aligner, against a 12-layer encoder of BERT-base size read over both sentences.

    python benchmarks/aligning.py --output results/benchmark_aligning.json
    python benchmarks/aligning.py --device cuda --dtype bfloat16
    python benchmarks/aligning.py --memory               # and `attncal align run` on 10,000 and 1,000,000 lines
    python benchmarks/aligning.py --eflomal eflomal-align --dtype bfloat16      # and eflomal on the same sentences
    python benchmarks/aligning.py --pairs 32 --rounds 1 --warmup 0 --train-steps 1       # does it run?

Timed are our sizes, randomly initialised, from text to word links (`WordAligner.align`) and in the model's forward
pass alone. The encoder is what aligners that compare contextual embeddings run (mBERT: 12 layers, d 768, 119,547
subwords): all 12 layers, though awesome-align reads its layer 8 by default; without special tokens, and without
tokenising or extracting links, so that the ratio of "text to links" favours the encoder.

All read the same synthetic sentences: log-normal lengths (mean 25 subwords, at most 100), Zipf's frequencies, one
subword in four goes on with a word. Batches are those of `WordAligner`; the encoder reads the two sides of each apart.
Every round times all of them in turn; a ratio is one of times of the same round.

Training is a step of the Trainer's kind (forward with all losses, backward, clipping, AdamW) on batches of each
size's own `tokens_per_batch`, on a CPU of the small size's for both; in bfloat16 autocast where the hardware is
made for it.

eflomal learns from the text that it aligns: all it takes for `--eflomal-pairs` of these sentences, both directions, is
counted in CPU seconds, as it has several threads.

Peak memory is the resident set of the process `attncal align run` that reads lines from a pipe. What more
lines take does not depend on the model: `--memory-model tiny` finds out faster.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path

import common
import numpy as np
import torch
from rich.progress import track
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.aligner_job import SIZES
from hf_attncal.data.batching import TokenBatchSampler, batches_by_length
from hf_attncal.data.collators import AlignmentCollator
from hf_attncal.inference.loading import bf16_is_fast
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel
from hf_attncal.models.modeling_mask_align import MaskAlignModel

# The published size of BERT-base, with the vocabulary of mBERT.
ENCODER = {
    "vocab_size": 119547,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
# Pairs of tokens that have a count after 100,000 sentence pairs.
COUNTS = 170_000
# For the memory of many lines: everything around a model that hardly takes any time.
TINY = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 1, "ffn_dim": 16}
# Times the encoder's pairs per second, at least.
TARGETS = {"base": 3.0, "small": 15.0, "hmm": 15.0}

MEAN_LENGTH, LENGTH_SIGMA, SIDES_SIGMA, MAX_LENGTH = 25, 0.6, 0.2, 100
CONTINUATIONS = 0.25
PAD, UNK = 0, 1
LINES_AT_ONCE = 2000  # that the memory measurement generates

# Runs a command and writes its peak resident set: a process that starts another passes its own peak on, so the one
# that starts what is measured must be a small one.
PEAK_OF_COMMAND = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""


# ---- sentences ----


@dataclass(frozen=True)
class Sentences:
    """Sentence pairs of no language, the same for every size of vocabulary.

    Args:
        lengths: (pairs, 2), subwords of source and target.
        places: (subwords,), where in the list of subwords by frequency each is, in [0, 1); source before target.
        starts: (subwords,), whether a word begins there.
    """

    lengths: np.ndarray
    places: np.ndarray
    starts: np.ndarray

    @classmethod
    def draw(cls, pairs: int, seed: int | Sequence[int]) -> "Sentences":
        """Random pairs; the lengths of the two sides of a pair are alike."""
        random = np.random.default_rng(seed)
        source = random.lognormal(np.log(MEAN_LENGTH) - LENGTH_SIGMA**2 / 2, LENGTH_SIGMA, pairs)
        target = source * random.lognormal(-(SIDES_SIGMA**2) / 2, SIDES_SIGMA, pairs)
        lengths = np.stack([source, target], axis=1).round().astype(np.int64).clip(1, MAX_LENGTH)
        starts = random.random(lengths.sum()) >= CONTINUATIONS
        starts[np.cumsum(lengths) - lengths.ravel()] = True
        return cls(lengths, random.random(lengths.sum()), starts)

    def ids(self, vocab_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Token ids of every pair: subword r of a vocabulary is drawn with a probability near 1 / r (Zipf)."""
        first = np.where(self.starts, UNK + 1, _first_continuation(vocab_size))
        number = np.where(self.starts, _first_continuation(vocab_size), vocab_size) - first
        ids = first + np.floor((number + 1) ** self.places).astype(np.int64) - 1
        sides = np.split(ids, np.cumsum(self.lengths)[:-1])
        return list(zip(sides[::2], sides[1::2], strict=True))


def _first_continuation(vocab_size: int) -> int:
    """The ids of subwords that go on with a word are the last quarter."""
    return vocab_size - vocab_size // 4


def tokenizer_of(vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer that splits what `text_of` writes into the ids that it was written from."""
    pieces = {"<pad>": PAD, "<unk>": UNK}
    for index in range(UNK + 1, vocab_size):
        pieces[("##" if index >= _first_continuation(vocab_size) else "") + _piece(index, vocab_size)] = index
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="<unk>", max_input_chars_per_word=1000))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")


def _piece(index: int, vocab_size: int) -> str:
    """As wide as every other: the longest piece that fits is the only one."""
    return f"{'c' if index >= _first_continuation(vocab_size) else 'w'}{index:05d}"


def text_of(ids: np.ndarray, vocab_size: int) -> str:
    """Token ids as words."""
    first = _first_continuation(vocab_size)
    return "".join(("" if i >= first else " ") + _piece(i, vocab_size) for i in ids.tolist()).lstrip()


# ---- models ----


def encoder_model(args: argparse.Namespace) -> BertModel:
    """The encoder, randomly initialised."""
    torch.manual_seed(args.seed)
    model = BertModel(BertConfig(**ENCODER), add_pooling_layer=False)
    return model.to(args.device, getattr(torch, args.dtype)).eval()


def our_model(args: argparse.Namespace, size: str, training: bool = False) -> PreTrainedModel:
    """A size of ours, randomly initialised; for training in float32 and with the kernel that the size trains with.

    "tiny" has the vocabulary of "small"; "hmm" has as many counts as one that has read 100,000 pairs.
    """
    torch.manual_seed(args.seed)
    if size == "hmm":
        return counting_model().to(args.device).eval()
    fields = dict(SIZES["small"]["model"]) | TINY if size == "tiny" else dict(SIZES[size]["model"])
    kernel = fields.pop("attn_implementation", None)
    config = MaskAlignConfig(
        vocab_size=SIZES["small" if size == "tiny" else size]["tokenizer"]["vocab_size"],
        pad_token_id=PAD,
        attn_implementation=kernel if training else None,
        **fields,
    )
    model = MaskAlignModel(config).to(args.device)
    return model.train() if training else model.to(getattr(torch, args.dtype)).eval()


def counting_model() -> HMMAlignModel:
    """Random counts; few of the pairs of tokens that are looked up have one, as in the middle of a sentence pair."""
    vocab_size = SIZES["hmm"]["tokenizer"]["vocab_size"]
    pairs = torch.randint(vocab_size**2, (COUNTS,)).unique()
    model = HMMAlignModel(HMMAlignConfig(vocab_size=vocab_size, entries=len(pairs), pad_token_id=PAD))
    model.pairs.copy_(pairs)
    model.counts.copy_(torch.rand(len(pairs)))
    model.source_counts.fill_(100)
    model.target_counts.fill_(100)
    return model


def aligner_of(args: argparse.Namespace, size: str, pairs: Sequence[tuple[str, str]]) -> WordAligner:
    """An aligner whose threshold gives `pairs` as many links as they have target words.

    Random weights are flat: with the threshold of a trained model there would be no links to write.
    """
    model = our_model(args, size)
    aligner = WordAligner(model, tokenizer_of(model.config.vocab_size))
    scores = np.concatenate([alignment.scores for alignment in aligner.align(pairs, threshold=0.0)])
    words = sum(len(target.split()) for _, target in pairs)
    if words < len(scores):
        aligner.model.config.alignment_threshold = float(np.sort(scores)[-words - 1])
    return aligner


def padded_batches(args: argparse.Namespace, vocab_size: int, sentences: Sentences) -> list[dict[str, torch.Tensor]]:
    """The batches that `WordAligner.align` makes, on the device, named as `MaskAlignModel` takes them."""
    ids, collate = sentences.ids(vocab_size), AlignmentCollator(PAD)
    batches = []
    lengths = [tuple(pair) for pair in sentences.lengths.tolist()]
    for indices in batches_by_length(lengths, args.batch_size, args.batch_tokens):
        batch = collate([{"input_ids": ids[i][0], "target_input_ids": ids[i][1]} for i in indices])
        del batch["return_loss"]
        batches.append({name: tensor.to(args.device) for name, tensor in batch.items()})
    return batches


# ---- speed ----


def timed_in_turn(args: argparse.Namespace, runs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of every run in every round; the order moves on by one each round."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for number in track(range(args.warmup + args.rounds), description="rounds"):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            common.synchronize(args)
            start = time.perf_counter()
            runs[name]()
            common.synchronize(args)
            if number >= args.warmup:
                seconds[name].append(time.perf_counter() - start)
    return seconds


@torch.no_grad()
def measure_aligning(args: argparse.Namespace) -> dict[str, dict]:
    """Pairs and tokens per second of the encoder and of ours, and the ratios of the second to the first."""
    sentences = Sentences.draw(args.pairs, args.seed)
    encoder = encoder_model(args)
    encoder_batches = padded_batches(args, encoder.config.vocab_size, sentences)

    def encode() -> None:
        for batch in encoder_batches:
            for side in ("", "target_"):
                encoder(input_ids=batch[f"{side}input_ids"], attention_mask=batch[f"{side}attention_mask"])

    runs: dict[str, Callable[[], object]] = {"encoder": encode}
    parameters = {"encoder": encoder.num_parameters()}
    links = {}
    for size in args.sizes:
        vocab_size = SIZES[size]["tokenizer"]["vocab_size"]
        pairs = [
            (text_of(source, vocab_size), text_of(target, vocab_size)) for source, target in sentences.ids(vocab_size)
        ]
        aligner = aligner_of(args, size, pairs[:64])
        batches = padded_batches(args, vocab_size, sentences)

        def forward(model: PreTrainedModel = aligner.model, batches: list = batches) -> None:
            for batch in batches:
                model.alignments(**batch)

        def align(aligner: WordAligner = aligner, pairs: list = pairs) -> list:
            return aligner.align(pairs, batch_size=args.batch_size, batch_tokens=args.batch_tokens)

        runs |= {f"{size} forward": forward, f"{size} align": align}
        parameters[size] = aligner.model.num_parameters()
        links[size] = sum(len(alignment.links) for alignment in align()) / args.pairs

    seconds = timed_in_turn(args, runs)
    tokens = int(sentences.lengths.sum())
    words = int(sentences.starts.sum())

    def speed(name: str) -> dict:
        return {
            "seconds": seconds[name],
            "pairs_per_second": common.spread([args.pairs / s for s in seconds[name]]),
            "tokens_per_second": common.spread([tokens / s for s in seconds[name]]),
        }

    def against_encoder(name: str) -> dict:
        ratios = [theirs / ours for theirs, ours in zip(seconds["encoder"], seconds[name], strict=True)]
        return speed(name) | {"ratio_to_encoder": common.spread(ratios)}

    return {
        "sentences": {"pairs": args.pairs, "tokens": tokens, "words": words, "batches": len(encoder_batches)},
        "encoder": {"config": ENCODER, "parameters": parameters["encoder"], **speed("encoder")},
        "aligners": {
            size: {
                "parameters": parameters[size],
                "links_a_pair": links[size],
                "forward": against_encoder(f"{size} forward"),
                "text_to_links": against_encoder(f"{size} align"),
            }
            for size in args.sizes
        },
    }


def training_steps(args: argparse.Namespace, size: str, max_tokens: int, bf16: bool) -> Callable[[], int]:
    """A function that makes `--train-steps` training steps and returns how many tokens they had."""
    model = our_model(args, size, training=True)
    vocab_size = model.config.vocab_size
    sentences = Sentences.draw(20 * max_tokens // MEAN_LENGTH, args.seed)
    sentences = _of_two_tokens_or_more(sentences)
    ids = sentences.ids(vocab_size)
    counts = [
        torch.from_numpy(np.bincount(np.concatenate(side), minlength=vocab_size)) for side in zip(*ids, strict=True)
    ]
    model.set_token_counts(*(count.to(args.device) for count in counts))
    collate = AlignmentCollator(PAD)
    batches = cycle(list(TokenBatchSampler(sentences.lengths, max_tokens, seed=args.seed)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.98), fused=True)
    device = torch.device(args.device).type

    def steps() -> int:
        tokens = 0
        for _ in range(args.train_steps):
            indices = next(batches)
            batch = collate([{"input_ids": ids[i][0], "target_input_ids": ids[i][1]} for i in indices])
            batch = {name: value.to(args.device) if torch.is_tensor(value) else value for name, value in batch.items()}
            with torch.autocast(device, torch.bfloat16) if bf16 else nullcontext():
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            tokens += int(sentences.lengths[indices].sum())
        return tokens

    return steps


def _of_two_tokens_or_more(sentences: Sentences) -> Sentences:
    """Without sides of one token, which training drops."""
    keep = sentences.lengths.min(axis=1) >= 2
    tokens = np.repeat(np.repeat(keep, 2), sentences.lengths.ravel())
    return Sentences(sentences.lengths[keep], sentences.places[tokens], sentences.starts[tokens])


def measure_training(args: argparse.Namespace) -> dict[str, dict]:
    """Tokens of both sides per second of training each size."""
    bf16 = bf16_is_fast()
    on_gpu = torch.device(args.device).type == "cuda"
    sizes = {
        size: SIZES[size if on_gpu else "small"]["training"]["tokens_per_batch"]
        for size in args.sizes
        if size != "hmm"
    }
    tokens: dict[str, list[int]] = {size: [] for size in sizes}

    def counted(size: str, steps: Callable[[], int]) -> Callable[[], None]:
        return lambda: tokens[size].append(steps())

    runs = {size: counted(size, training_steps(args, size, max_tokens, bf16)) for size, max_tokens in sizes.items()}
    seconds = timed_in_turn(args, runs)
    return {
        size: {
            "tokens_per_batch": max_tokens,
            "bf16": bf16,
            "seconds": seconds[size],
            "tokens_per_second": common.spread(
                [n / s for n, s in zip(tokens[size][args.warmup :], seconds[size], strict=True)]
            ),
        }
        for size, max_tokens in sizes.items()
    }


def measure_eflomal(args: argparse.Namespace) -> dict:
    """CPU seconds of the command `--eflomal` for both directions, from text to links, and pairs per CPU second."""
    vocab_size = SIZES["small"]["tokenizer"]["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("source", "target", "forward", "backward")]
        with files[0].open("w") as sources, files[1].open("w") as targets:
            for source, target in Sentences.draw(args.eflomal_pairs, args.seed).ids(vocab_size):
                sources.write(text_of(source, vocab_size) + "\n")
                targets.write(text_of(target, vocab_size) + "\n")
        options = zip(("-s", "-t", "-f", "-r"), map(str, files), strict=True)
        # Where it is installed in a folder of its own, it finds its companions there.
        environment = os.environ | {"PATH": os.pathsep.join([str(Path(args.eflomal).parent), os.environ["PATH"]])}
        command = [args.eflomal, *chain.from_iterable(options)]
        before = os.times()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=environment)
        after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return {"pairs": args.eflomal_pairs, "cpu_seconds": seconds, "pairs_per_second": args.eflomal_pairs / seconds}


# ---- memory ----


def generated_lines(lines: int, vocab_size: int, seed: int) -> Iterator[bytes]:
    """Lines `source ||| target`, some thousand at a time; each number of lines begins with the same ones."""
    for number, begin in enumerate(range(0, lines, LINES_AT_ONCE)):
        pairs = Sentences.draw(LINES_AT_ONCE, [seed, number]).ids(vocab_size)[: lines - begin]
        texts = ((text_of(source, vocab_size), text_of(target, vocab_size)) for source, target in pairs)
        yield "".join(f"{source} ||| {target}\n" for source, target in texts).encode()


def peak_of_aligning(args: argparse.Namespace, checkpoint: str, vocab_size: int, lines: int) -> dict:
    """Peak resident set of `attncal align run` on so many lines from a pipe, and its time.

    Raises:
        RuntimeError: the command failed or did not write one line for each line.
    """
    with tempfile.TemporaryDirectory() as folder:
        peak, errors = Path(folder, "peak"), Path(folder, "errors")
        align = [sys.executable, "-m", "hf_attncal.commands", "align", "run", checkpoint, "--device", args.device]
        align += ["--threads", str(args.threads), "--dtype", args.dtype]
        command = [sys.executable, "-c", PEAK_OF_COMMAND, str(peak), *align]
        start = time.perf_counter()
        with errors.open("wb") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        written = 0

        def count() -> None:
            nonlocal written
            while piece := process.stdout.read1():
                written += piece.count(b"\n")

        reader = threading.Thread(target=count)
        reader.start()
        with suppress(BrokenPipeError):  # the command has ended early: its status says so below
            for piece in generated_lines(lines, vocab_size, args.seed):
                process.stdin.write(piece)
            process.stdin.close()
        status = process.wait()
        reader.join()
        if status or written != lines:
            raise RuntimeError(
                f"`attncal align run` ended with {status} and wrote {written} lines for {lines}:\n{errors.read_text()}"
            )
        unit = 1 if sys.platform == "darwin" else 1024
        return {
            "lines": lines,
            "peak_bytes": int(peak.read_text()) * unit,
            "seconds": time.perf_counter() - start,
        }


def measure_memory(args: argparse.Namespace) -> dict:
    """Peaks for every number of lines, and how much the most lines take over the fewest."""
    vocab_size = SIZES["small"]["tokenizer"]["vocab_size"]
    ids = Sentences.draw(64, args.seed).ids(vocab_size)
    aligner = aligner_of(args, args.memory_model, [tuple(text_of(side, vocab_size) for side in pair) for pair in ids])
    with tempfile.TemporaryDirectory() as checkpoint:
        aligner.model.save_pretrained(checkpoint)
        aligner.tokenizer.save_pretrained(checkpoint)
        del aligner
        common.release(args)
        runs = [peak_of_aligning(args, checkpoint, vocab_size, lines) for lines in track(sorted(args.lines), "memory")]
    difference = (runs[-1]["peak_bytes"] - runs[0]["peak_bytes"]) / 2**20
    return {"model": args.memory_model, "runs": runs, "difference_mb": difference}


# ---- report ----


def report(args: argparse.Namespace, result: dict) -> None:
    """Print the table of speeds and what memory was measured."""
    encoder = result["encoder"]
    rows = [[f"encoder, {ENCODER['num_hidden_layers']} layers", *_speeds(encoder), "1", "-", "-"]]
    for size, measured in result["aligners"].items():
        for name in ("forward", "text_to_links"):
            ratio = measured[name]["ratio_to_encoder"]
            rows.append(
                [
                    f"{size}, {name.replace('_', ' ')}",
                    *_speeds(measured[name]),
                    f"{ratio['median']:.2f}",
                    f"{ratio['min']:.2f} - {ratio['max']:.2f}",
                    common.verdict(ratio["median"], TARGETS.get(size), at_most=False),
                ]
            )
    title = f"Aligning {args.pairs} pairs, {args.device}, {args.dtype}, {args.threads} thread(s)"
    common.show(title, ["", "pairs/s", "tokens/s", "times encoder", "min - max", "target"], rows)
    if "eflomal" in result:
        print(f"eflomal: {result['eflomal']['pairs_per_second']:.1f} pairs per CPU second")
    rows = [
        [size, f"{measured['tokens_per_second']['median']:.0f}", "bf16" if measured["bf16"] else "float32"]
        for size, measured in result.get("training", {}).items()
    ]
    if rows:
        common.show("Training", ["size", "tokens/s", "precision"], rows)
    for run in result.get("memory", {}).get("runs", []):
        print(f"`attncal align run`, {run['lines']} lines: peak {run['peak_bytes'] / 2**20:.0f} MB")


def _speeds(measured: dict) -> list[str]:
    return [f"{measured['pairs_per_second']['median']:.1f}", f"{measured['tokens_per_second']['median']:.0f}"]


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of all weights")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=list(SIZES), help="of ours")
    parser.add_argument("--pairs", type=int, default=512, help="sentence pairs of a round")
    parser.add_argument("--batch-size", type=int, default=256, help="most pairs of a batch")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="most tokens, both sides and padding included")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds")
    parser.add_argument("--warmup", type=int, default=1, help="rounds before those")
    parser.add_argument("--train-steps", type=int, default=3, help="training steps of a round; 0 for no training")
    parser.add_argument("--memory", action="store_true", help="measure the memory of `attncal align run` too")
    parser.add_argument("--memory-model", choices=("small", "tiny"), default="small")
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000, 1_000_000], help="that it is measured with")
    parser.add_argument("--eflomal", metavar="COMMAND", help="measure eflomal, too: how to call `eflomal-align`")
    parser.add_argument("--eflomal-pairs", type=int, default=100_000, help="sentence pairs that it learns and aligns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/, named for benchmark and device")
    return parser


def main(arguments: list[str] | None = None) -> dict:
    parser = make_parser()
    args = parser.parse_args(arguments)
    for name in ("pairs", "rounds", "batch_size", "batch_tokens", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if min(args.lines) < 1:
        parser.error(f"--lines must be at least 1, got {min(args.lines)}")
    args.bf16 = args.dtype == "bfloat16"
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)  # the tokenizers have the same number of threads
    common.set_up(args)
    result = common.record("aligning", args, length=MEAN_LENGTH, targets=TARGETS)
    if args.memory:  # first, while this process holds no model that the command would have to share memory with
        result["memory"] = measure_memory(args)
    result |= measure_aligning(args)
    common.release(args)
    if args.eflomal:
        result["eflomal"] = measure_eflomal(args)
        for measured in result["aligners"].values():
            speed = measured["text_to_links"]["pairs_per_second"]["median"]
            measured["text_to_links"]["ratio_to_eflomal"] = speed / result["eflomal"]["pairs_per_second"]
    if args.train_steps and set(args.sizes) != {"hmm"}:  # counts are not trained in steps
        result["training"] = measure_training(args)
    report(args, result)
    common.save(args, result)
    return result


if __name__ == "__main__":
    main()
