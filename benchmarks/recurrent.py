"""Training steps and beam search of the recurrent models against a plain LSTM encoder-decoder, and against JoeyNMT.

    python benchmarks/recurrent.py --threads 1 --joeynmt /path/to/venv/bin/python
    python benchmarks/recurrent.py --variants fed --switches local-p --repeats 3 --batch 8 --d-model 64 --searches 2

The sizes are those of configs/translation/multi30k_luong_base.yaml. The plain model is `torch.nn.LSTM` twice, one
table and an output layer, without attention, with a beam search of its own that does no more than it must: no end of
sentence, no lengths. JoeyNMT runs in the interpreter that is named, one of an environment of its own (`pip install
joeynmt importlib_metadata`), and is left out without one; it has the same cell, widths, layers, score, vocabulary and
batch, in float32 on as many threads. A step is forward, backward and Adam. All sentences are searched for the same
number of steps. What is reported is the other's time divided by ours: above 1 ours is faster. Of each switch it is the
time with it divided by the time without; that of `uam` is on targets that need no extension.
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import common
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from hf_attncal import LuongConfig, LuongForConditionalGeneration

# Two directions, concatenated and projected: as many parameters as JoeyNMT's, nearly.
PEERS = {
    "fed": {},
    "unfed": {"input_feeding": False},
    "gru": {"cell": "gru"},
    "no-attention": {"input_feeding": False, "attention_window": None},
}
JOEYNMT = ("fed", "unfed", "gru")  # what it has, too
# Against "fed", which differs in nothing else.
SWITCHES = {
    "sum": {"directions": "sum"},
    "one-direction": {"bidirectional": False},
    "concat": {"score": "concat"},
    "local-m": {"attention_window": "local-m"},
    "local-p": {"attention_window": "local-p"},
    "gate": {"selective_gate": True},
    "gated": {"calibration": "gated"},
    "uam": {"uam": True, "null_token_id": 0},
}
DROPOUT = 0.1


class Plain(nn.Module):
    """Encoder of two directions, and decoder, which starts from the sum of the last states of both."""

    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.table = nn.Embedding(args.vocab, args.d_model)
        sizes = {"input_size": args.d_model, "hidden_size": args.d_model, "num_layers": args.layers}
        self.encoder = nn.LSTM(**sizes, batch_first=True, dropout=DROPOUT, bidirectional=True)
        self.decoder = nn.LSTM(**sizes, batch_first=True, dropout=DROPOUT)
        self.output = nn.Linear(args.d_model, args.vocab)

    def encode(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        lengths = batch["attention_mask"].sum(dim=1).cpu()
        packed = pack_padded_sequence(self.table(batch["input_ids"]), lengths, batch_first=True, enforce_sorted=False)
        _, state = self.encoder(packed)
        return tuple(part.unflatten(0, (-1, 2)).sum(dim=1) for part in state)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        labels = batch["labels"]
        read = torch.cat([torch.full_like(labels[:, :1], 2), labels[:, :-1].clamp(min=1)], dim=1)
        states, _ = self.decoder(self.table(read), self.encode(batch))
        return nn.functional.cross_entropy(self.output(states).flatten(0, 1), labels.flatten())

    @torch.no_grad()
    def search(self, batch: dict[str, Tensor], beams: int, steps: int) -> Tensor:
        sentences = len(batch["input_ids"])
        state = tuple(part.repeat_interleave(beams, dim=1) for part in self.encode(batch))
        tokens = torch.full((sentences * beams, 1), 2, device=self.output.weight.device)
        scores = torch.zeros(sentences, beams, device=tokens.device)
        scores[:, 1:] = -1e9
        first = torch.arange(sentences, device=tokens.device)[:, None] * beams
        for _ in range(steps):
            hidden, state = self.decoder(self.table(tokens[:, -1:]), state)
            logs = self.output(hidden[:, -1]).log_softmax(dim=-1)
            total = (scores.flatten()[:, None] + logs).view(sentences, -1)
            scores, best = total.topk(beams)
            rows = (first + best // logs.shape[-1]).flatten()
            state = tuple(part[:, rows] for part in state)
            tokens = torch.cat([tokens[rows], (best % logs.shape[-1]).view(-1, 1)], dim=1)
        return tokens.view(sentences, beams, -1)[:, 0]


def our_model(args: argparse.Namespace, settings: dict) -> LuongForConditionalGeneration:
    """A model of these settings, from the seed, that never ends a sentence."""
    torch.manual_seed(args.seed)
    sizes = {"vocab_size": args.vocab, "d_model": args.d_model, "dropout": DROPOUT}
    layers = {"encoder_layers": args.layers, "decoder_layers": args.layers}
    base = {"bidirectional": True, "directions": "project"}
    model = LuongForConditionalGeneration(LuongConfig(**sizes, **layers, **base | settings)).to(args.device)
    with torch.no_grad():
        model.lm_head.bias[model.config.eos_token_id] = -1e4
    return model


def training(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """A function that does one step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        model.train()
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def sources(args: argparse.Namespace, sentences: int) -> dict[str, Tensor]:
    """What is searched for."""
    found = common.batch(argparse.Namespace(**vars(args) | {"batch": sentences}))
    return {name: found[name] for name in ("input_ids", "attention_mask")}


def plain_runs(args: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """What is timed of the plain model: a training step, and a search by number of sentences."""
    model, batch = Plain(args).to(args.device), common.batch(args)

    def translate(inputs: dict[str, Tensor]) -> None:
        model.eval()
        model.search(inputs, args.beams, args.new_tokens)

    searches = {f"search_{n}": partial(translate, sources(args, n)) for n in args.searches}
    return {"training": training(model, lambda: model.loss(batch)), **searches}


def our_runs(args: argparse.Namespace, model: LuongForConditionalGeneration) -> dict[str, Callable[[], None]]:
    """The same of ours."""
    batch = common.batch(args)
    options = {"num_beams": args.beams, "do_sample": False, "max_new_tokens": args.new_tokens}

    def translate(inputs: dict[str, Tensor]) -> None:
        model.eval()
        tokens = model.generate(**inputs, **options)
        expected = (len(inputs["input_ids"]), 1 + args.new_tokens)
        if tokens.shape != expected:
            raise RuntimeError(f"expected hypotheses of shape {expected}, got {tuple(tokens.shape)}")

    searches = {f"search_{n}": partial(translate, sources(args, n)) for n in args.searches}
    return {"training": training(model, lambda: model(**batch).loss), **searches}


@contextmanager
def joeynmt_runs(
    args: argparse.Namespace, config: LuongConfig
) -> Iterator[tuple[dict[str, Callable[[], None]], dict[str, str | int]]]:
    """The same of JoeyNMT's model of the sizes of `config`, in a process of its own; and what that says of itself."""
    settings = {name: getattr(config, name) for name in ("cell", "d_model", "dropout", "input_feeding")}
    settings |= {name: getattr(args, name) for name in ("layers", "vocab", "threads", "seed", "beams", "new_tokens")}
    batch = common.batch(args)
    settings["training"] = {name: batch[name].tolist() for name in ("input_ids", "labels")}
    settings["searches"] = [{"input_ids": sources(args, n)["input_ids"].tolist()} for n in args.searches]
    program = [args.joeynmt, str(Path(__file__).with_name("recurrent_joeynmt.py"))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(line: str) -> str:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError(f"the process of JoeyNMT ended with {process.wait()}; its error is above")
            return answer

        about = json.loads(ask(json.dumps(settings)))
        searches = {f"search_{n}": partial(ask, str(place)) for place, n in enumerate(args.searches)}
        yield {"training": partial(ask, "training"), **searches}, about
        process.stdin.close()


def compare(args: argparse.Namespace, others: dict[str, Callable], ours: dict[str, Callable]) -> dict[str, dict]:
    """The seconds of both, and the other's divided by ours, of everything that is timed."""
    compared = {}
    for what in ours:
        other_seconds, seconds = common.in_turn(args, others[what], ours[what])
        ratios = common.spread([theirs / own for theirs, own in zip(other_seconds, seconds, strict=True)])
        compared[what] = {"other_seconds": other_seconds, "seconds": seconds, "speed_ratio": ratios}
    return compared


def costs(args: argparse.Namespace, name: str) -> dict[str, dict]:
    """Time with a switch divided by the time without."""
    base, switched = (our_runs(args, our_model(args, settings)) for settings in ({}, SWITCHES[name]))
    compared = compare(args, switched, base)
    return {what: {"time_ratio": measured["speed_ratio"]} for what, measured in compared.items()}


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=96, length=16, repeats=10, variants=PEERS)
    parser.set_defaults(d_model=256, layers=2, vocab=4000)
    parser.add_argument("--switches", nargs="*", choices=SWITCHES, default=list(SWITCHES), metavar="NAME")
    parser.add_argument("--beams", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--searches", nargs="+", type=int, default=[1, 16, 64], help="sentences of each search")
    parser.add_argument("--joeynmt", metavar="PYTHON", help="an interpreter that has JoeyNMT")
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("recurrent", args, joeynmt=bool(args.joeynmt))  # not where it is
    timed = ["training", *(f"search_{sentences}" for sentences in args.searches)]
    variants, rows = {}, []
    for name in track(args.variants, description="variants"):
        model = our_model(args, PEERS[name])
        ours = our_runs(args, model)
        found = variants[name] = {"parameters": model.num_parameters(), "plain": compare(args, plain_runs(args), ours)}
        if args.joeynmt and name in JOEYNMT:
            with joeynmt_runs(args, model.config) as (theirs, about):
                found["joeynmt"] = compare(args, theirs, ours) | {"about": about}
        for other in ("plain", "joeynmt"):
            if other in found:
                ratios = (found[other][what]["speed_ratio"]["median"] for what in timed)
                rows.append([f"{name} to {other}", *(f"{ratio:.2f}" for ratio in ratios)])
        del ours, model
        common.release(args)
    common.show(f"Times as fast, beam {args.beams}, {args.device}", ["variant", *timed], rows)
    switches = {name: costs(args, name) for name in track(args.switches, description="switches")}
    rows = [
        [name, *(f"{cost[what]['time_ratio']['median']:.2f}" for what in timed)] for name, cost in switches.items()
    ]
    common.show("Time with a switch over time without", ["switch", *timed], rows)
    common.save(args, result | {"variants": variants, "switches": switches})


if __name__ == "__main__":
    main()
