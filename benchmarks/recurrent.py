"""Training steps and beam search of the recurrent models against a plain LSTM encoder-decoder without attention.

    python benchmarks/recurrent.py --threads 1                # with and without input feeding, and without attention
    python benchmarks/recurrent.py --variants fed --repeats 3 --batch 8 --d-model 64 --vocab 500

The plain model is `torch.nn.LSTM` twice, one table and an output layer, with a beam search of its own that does no
more than it must: no end of sentence, no lengths. A step is forward, backward and Adam. What is reported is the plain
model's time divided by ours: 1 is as fast, although ours attends.
"""

import argparse
from collections.abc import Callable

import common
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from hf_attncal import LuongConfig, LuongForConditionalGeneration

VARIANTS = {
    "fed": {"input_feeding": True},
    "unfed": {"input_feeding": False},
    "local-p": {"input_feeding": True, "attention_window": "local-p"},
    "no-attention": {"input_feeding": False, "attention_window": None},
}


class Plain(nn.Module):
    """Encoder and decoder, which starts from the encoder's last state."""

    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.table = nn.Embedding(args.vocab, args.d_model)
        self.encoder = nn.LSTM(args.d_model, args.d_model, args.layers, batch_first=True, dropout=0.1)
        self.decoder = nn.LSTM(args.d_model, args.d_model, args.layers, batch_first=True, dropout=0.1)
        self.output = nn.Linear(args.d_model, args.vocab)

    def encode(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        lengths = batch["attention_mask"].sum(dim=1).cpu()
        packed = pack_padded_sequence(self.table(batch["input_ids"]), lengths, batch_first=True, enforce_sorted=False)
        return self.encoder(packed)[1]

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


def our_model(args: argparse.Namespace, variant: str) -> LuongForConditionalGeneration:
    torch.manual_seed(args.seed)
    sizes = {"vocab_size": args.vocab, "d_model": args.d_model, "dropout": 0.1}
    layers = {"encoder_layers": args.layers, "decoder_layers": args.layers}
    return LuongForConditionalGeneration(LuongConfig(**sizes, **layers, **VARIANTS[variant])).to(args.device)


def training(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """A function that does one step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        model.train()
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def searches(
    args: argparse.Namespace, plain: Plain, ours: LuongForConditionalGeneration
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions that translate one fixed batch, to sentences of one length."""
    batch = common.batch(args)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {"num_beams": args.beams, "do_sample": False, "max_new_tokens": args.new_tokens}
    with torch.no_grad():
        ours.lm_head.bias[ours.config.eos_token_id] = -1e4  # no sentence ends, as in the plain search

    def plainly() -> None:
        plain.eval()
        plain.search(inputs, args.beams, args.new_tokens)

    def translate() -> None:
        ours.eval()
        tokens = ours.generate(**inputs, **options)
        if tokens.shape != (args.batch, 1 + args.new_tokens):
            raise RuntimeError(f"expected {args.batch} hypotheses of {1 + args.new_tokens} tokens, got {tokens.shape}")

    return plainly, translate


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=32, length=25, repeats=10, variants=VARIANTS)
    parser.set_defaults(d_model=256, layers=2, vocab=8000)
    parser.add_argument("--beams", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=25)
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("recurrent", args)
    batch = common.batch(args)
    plain = Plain(args).to(args.device)
    variants, rows = {}, []
    for name in track(args.variants, description="variants"):
        ours = our_model(args, name)
        timed = {
            "training": (training(plain, lambda: plain.loss(batch)), training(ours, lambda m=ours: m(**batch).loss)),
            "search": searches(args, plain, ours),
        }
        variants[name], row = {}, [name]
        for what, runs in timed.items():
            plain_seconds, seconds = common.in_turn(args, *runs)
            ratios = common.spread([p / o for p, o in zip(plain_seconds, seconds, strict=True)])
            variants[name][what] = {"plain_seconds": plain_seconds, "seconds": seconds, "speed_ratio": ratios}
            medians = (common.spread(values)["median"] for values in (plain_seconds, seconds))
            row += [*(f"{1000 * value:.0f}" for value in medians), f"{ratios['median']:.2f}"]
        rows.append(row)
        del ours, timed
        common.release(args)
    columns = [
        "variant",
        *(f"{what} {kind}" for what in ("training", "search") for kind in ("plain ms", "ms", "ratio")),
    ]
    common.show(f"{args.batch} sentences, beam {args.beams}, {args.device}", columns, rows)
    result["variants"] = variants
    common.save(args, result)


if __name__ == "__main__":
    main()
