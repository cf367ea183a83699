"""A tiny model to try out, with a checker and an aligner that say the same of every pair."""

from types import SimpleNamespace

import torch
from helpers import TINY

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.checking.checker import FlaggedSpan, PairVerdict
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.report.live import LiveModel

LINES = ["the old house is a house", "a <b>house</b>"]
HOSTILE_LINE = "</script><script>x()"  # few tokens: the model is tiny


class Checks:
    """Says that the first source word was left out and the last target word was made up."""

    def check(self, pairs):
        return [verdict(*pair) for pair in pairs]


class Links:
    """Links the first words."""

    def align(self, pairs):
        return [SimpleNamespace(links=((0, 0),) if all(map(str.split, pair)) else ()) for pair in pairs]


def verdict(source: str, target: str) -> PairVerdict:
    first = len(source.split()[0])
    left_out = (FlaggedSpan((0, 1), (0, first)),)
    words = target.split()
    made_up = (FlaggedSpan((len(words) - 1, len(words)), (target.rindex(words[-1]), len(target))),) if words else ()
    return PairVerdict(
        source, target, 0.95, 0.9, 0.1, 0, 0, 0, (), (), left_out, made_up, ("identical sides",), ("left_out",)
    )


def tiny_live() -> LiveModel:
    tokenizer = train_bpe_tokenizer([*LINES] * 3, vocab_size=60)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    fields = TINY | ids | {"vocab_size": len(tokenizer), "decoder_start_token_id": tokenizer.pad_token_id}
    torch.manual_seed(1)
    config = AttnCalMarianConfig(**fields, calibration="gated", init_std=1.0)
    return LiveModel(AttnCalMarianMTModel(config).eval(), tokenizer, "a <model>", Checks(), 2, Links())
