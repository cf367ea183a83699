"""What the default encoder learns of word alignment, once for all: `hf_attncal/alignment/encoder_adapter.safetensors`.

    python experiments/encoder_adapter.py --data ROOT --encoder FOLDER

Counts and the encoder align parallel text of three pairs of languages (`TEXTS`), in shards, each for itself. Their
links teach the encoder as it was a change of low rank of all linear maps of the layers that are read: where the
softmax over the cosines should be in both directions (see `encoder_prior.py`). In a second round the encoder with what
it learned in the first from a part of the text (`FIRST`) teaches it anew, from the start. Nobody has drawn a link of
these texts. Sentences are joined, up to `JOINED`, once they have links, since most of the text is short. The change is
cut to its largest singular values, so many that the file stays small, and `KEPT` of it is kept. Nothing comes from
Chinese, Romanian, Romansh, Swedish, Spanish or any language of XL-WA.

The terms of all text let anybody use it; they are in the file, and in NOTICE. `adapter_text.py` writes what ROOT does
not have of it. AER of the encoder alone on dev sets is written beside the losses, before and by how much is kept.
"""

import argparse
import math
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from adapter_text import EUROPARL, TANAKA, TATOEBA
from adapting import Pairs
from encoder_prior import links_above
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.encoder_prior import LEARNED_FILE, TEMPERATURE, EncoderPrior, halves
from hf_attncal.alignment.links import harmonic_mean
from hf_attncal.alignment.sources import Words, largest_over_words
from hf_attncal.alignment.statistical import quick_aligner
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.word_tokens import tokenize_words
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.io.files import read_lines, sha256, write_json
from hf_attncal.layouts import WEIGHTS
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate

CREDITS = {"licence": "Apache-2.0", "changes": "intfloat/multilingual-e5-small (MIT)"}


def files(folder: str, *languages: str) -> list[str]:
    return [f"{folder}/train.{language}.gz" for language in languages]


class ParallelText(NamedTuple):
    """Files of both sides, the fewest words of a side, how many of the first pairs, in how many shards, the credit."""

    source: str
    target: str
    fewest: int
    pairs: int
    shards: int
    credit: str


# Only texts whose terms let anybody use what is learned from them: not those for research alone or without commerce.
TEXTS = {
    "ja-en": ParallelText(*files("tanaka-enja", "ja", "en"), 6, 8000, 3, TANAKA),
    "de-en": ParallelText(*files("europarl-deen", "de", "en"), 3, 4000, 1, EUROPARL),
    "de-en, short": ParallelText(*files("tatoeba-deen", "de", "en"), 6, 9000, 3, TATOEBA),
    "en-fr": ParallelText(*files("europarl-enfr", "en", "fr"), 3, 9000, 3, EUROPARL),
    "en-fr, short": ParallelText(*files("tatoeba-enfr", "en", "fr"), 6, 3000, 1, TATOEBA),
}
CREDITS |= {name: f"{text.source}, {text.target}: {text.credit}" for name, text in TEXTS.items()}
FIRST = 0.25  # of the shards' pairs, for the first round
JOINED = 3  # sentences of a pair at most
DEV = {
    "bicici-deen": ("bicici-deen/dev", "de", "en"),
    "wpt-roen": ("wpt-roen/dev", "ro", "en"),
    "wpt03-enfr": ("wpt03-enfr/dev", "en", "fr"),
    "dermit-derm": ("dermit-derm/dev", "de", "rm"),
}
LONGEST = 55  # words of a side
MOST_TOKENS, BATCH, NEIGHBOURS = 90, 4800, 640
LEAST = 0.25  # probability of a link that is taught
RATE, RISING, LAST = 1e-3, 40, 0.03  # highest rate, steps in which it rises, share of it at the end
KEPT, TRIED = 0.9, (0.8, 0.9, 1.0)
NUMBERS = 268_000  # of the halves of the change
Taught = tuple[WordTokens, WordTokens, np.ndarray]


def pairs_of(root: Path, name: str) -> Pairs:
    """Return the words of the pairs of a text, each once."""
    text = TEXTS[name]
    texts = (read_lines(root / file) for file in (text.source, text.target))
    sides = (tuple(tuple(side.split()) for side in pair) for pair in zip(*texts, strict=True))
    fitting = {pair: None for pair in sides if all(text.fewest <= len(side) <= LONGEST for side in pair)}
    return list(islice(fitting, text.pairs))


def link_cells(aligner: WordAligner, pairs: Sequence[Words]) -> list[np.ndarray]:
    """Return the link scores of each pair, the harmonic mean of both directions, (source words, target words)."""
    scores = [np.zeros(tuple(map(len, pair)), np.float32) for pair in pairs]
    for indices, weights in aligner.source.weights(pairs, 256, 4096):
        both = harmonic_mean(weights.forward, weights.backward)
        both = largest_over_words(both, weights.source_words, weights.target_words)
        for index, cells, (sources, targets) in zip(indices, both, weights.words, strict=True):
            scores[index] = cells[:sources, :targets].numpy()
    return scores


def teach(prior: EncoderPrior, pairs: Pairs) -> list[Taught]:
    """Align a text by counts with the encoder; return the tokens of both sides and the links, (S, T)."""
    prior.forget()
    aligner = quick_aligner(pairs, encoder=prior)
    sides = [
        tokenize_words(prior.reader.tokenizer, [" ".join(pair[side]) for pair in pairs], special_tokens=False)
        for side in (0, 1)
    ]
    links = (np.where(cells > LEAST, cells, 0.0) for cells in link_cells(aligner, pairs))
    found = list(zip(*sides, links, strict=True))
    return [one for one in found if max(len(one[0].ids), len(one[1].ids)) <= MOST_TOKENS]


def joined(text: list[Taught], rng: np.random.Generator) -> list[Taught]:
    """Return pairs of one to `JOINED` pairs that follow each other; links stay within each."""
    found: list[Taught] = []
    wanted = 0
    for one in text:
        longest = max(len(found[-1][side].ids) + len(one[side].ids) for side in (0, 1)) if wanted else 0
        if wanted and longest <= MOST_TOKENS:
            found[-1] = _after(found[-1], one)
            wanted -= 1
        else:
            found.append(one)
            wanted = int(rng.integers(JOINED))
    return found


def _after(first: Taught, second: Taught) -> Taught:
    sides = []
    for one, other in zip(first[:2], second[:2], strict=True):
        places = np.where(other.word_ids == NO_WORD, NO_WORD, other.word_ids + one.words)
        both = np.concatenate([one.ids, other.ids]), np.concatenate([one.word_ids, places])
        sides.append(WordTokens(*both, one.words + other.words))
    links = np.zeros((sides[0].words, sides[1].words), np.float32)
    links[: first[0].words, : first[1].words] = first[2]
    links[first[0].words :, first[1].words :] = second[2]
    return (*sides, links)


class Changed(nn.Module):
    """A linear map with a change of low rank."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, states: Tensor) -> Tensor:
        change = F.linear(F.linear(states, self.a.to(states.dtype)), self.b.to(states.dtype))
        return self.base(states) + change


def changeable(encoder: nn.Module, rank: int) -> dict[str, Changed]:
    """Put a `Changed` in place of each linear map of the layers; return them by name."""
    names = [name for name, module in encoder.named_modules() if type(module) is nn.Linear and "layer." in name]
    changed = {name: Changed(encoder.get_submodule(name), rank) for name in names}
    for name, module in changed.items():
        parent, _, last = name.rpartition(".")
        setattr(encoder.get_submodule(parent), last, module)
    return changed


def cut(changes: dict[str, Tensor], numbers: int = NUMBERS) -> dict[str, tuple[Tensor, Tensor]]:
    """Return A (rank, inputs) and B (outputs, rank) of each map, with the singular values that say most a number.

    Args:
        changes: of the weights, (outputs, inputs) each. numbers: how many the halves may have together.
    """
    parts, ranked = {name: torch.linalg.svd(change, full_matrices=False) for name, change in changes.items()}, []
    for name, (_, values, _) in parts.items():
        cost = sum(changes[name].shape)
        ranked += [(float(value**2) / cost, cost, name) for value in values]
    ranks = dict.fromkeys(changes, 0)
    for _, cost, name in sorted(ranked, reverse=True):
        numbers -= cost
        if numbers < 0:
            break
        ranks[name] += 1
    halved = {}
    for name, (left, values, right) in parts.items():
        root = values[: ranks[name]].sqrt()
        both = root[:, None] * right[: ranks[name]], left[:, : ranks[name]] * root
        halved[name] = both[0].contiguous(), both[1].contiguous()
    return {name: both for name, both in halved.items() if ranks[name]}


def batches(texts: Sequence[list[Taught]], rng: np.random.Generator) -> list[list[Taught]]:
    """Return batches of pairs of one text and of about the same length."""
    found = []
    for text in texts:
        order = rng.permutation(len(text))
        for start in range(0, len(order), NEIGHBOURS):
            near = [text[n] for n in order[start : start + NEIGHBOURS]]
            batch: list[Taught] = []
            for one in sorted(near, key=lambda pair: len(pair[0].ids) + len(pair[1].ids)):
                longest = max(len(side.ids) for pair in (*batch, one) for side in pair[:2])
                if batch and 2 * longest * (len(batch) + 1) > BATCH:
                    found.append(batch)
                    batch = []
                batch.append(one)
            found += [batch] if len(batch) > 3 else []
    return found


def words_of(prior: EncoderPrior, side: int, texts: Sequence[WordTokens]) -> tuple[Tensor, Tensor]:
    """Return the states of the words less their mean, (B, words, size), and which are real."""
    states = prior.reader.states([text.ids for text in texts])[prior.layer].float()
    share = torch.zeros(len(texts), max(text.words for text in texts), states.shape[1], device=states.device)
    for row, text in enumerate(texts):
        inside = np.nonzero(text.word_ids != NO_WORD)[0]
        share[row, text.word_ids[inside], inside] = 1
    real = share.sum(2, keepdim=True) > 0
    words = share / share.sum(2, keepdim=True).clamp(min=1) @ states
    mean = words.sum((0, 1)) / real.sum()
    return F.normalize((words - mean) * real + 1e-9, dim=2), real[:, :, 0]


def loss_of(prior: EncoderPrior, batch: Sequence[Taught]) -> Tensor:
    """Return the cross-entropy of both directions' softmax against the links."""
    (source, source_real), (target, target_real) = (
        words_of(prior, side, [one[side] for one in batch]) for side in (0, 1)
    )
    links = torch.zeros(len(batch), source.shape[1], target.shape[1], device=source.device)
    for row, (*_, found) in enumerate(batch):
        links[row, : found.shape[0], : found.shape[1]] = torch.from_numpy(found).to(links)
    apart = ~(source_real[:, :, None] & target_real[:, None])
    scores = (source @ target.mT / TEMPERATURE).masked_fill(apart, -1e4)
    wanted = [links / links.sum(dim, keepdim=True).clamp(min=1) for dim in (2, 1)]
    logs = scores.log_softmax(2), scores.log_softmax(1)
    total = sum((want * log).sum() for want, log in zip(wanted, logs, strict=True))
    return -total / sum(want.sum() for want in wanted).clamp(min=1)


def dev_scores(prior: EncoderPrior, root: Path) -> dict[str, float]:
    """Return the AER of the encoder alone on each dev set."""
    scores = {}
    for name, place in DEV.items():
        gold = read_gold(root, place)
        prior.forget()
        cells = prior.cells([tuple(tuple(side.split()) for side in pair) for pair in gold.pairs])
        scores[name] = alignment_error_rate(gold.links, [links_above(one) for one in cells], check_indices=False).aer
    return scores


def read_gold(root: Path, place: tuple[str, str, str]) -> Gold:
    return Gold.read(*(root / f"{place[0]}.{end}" for end in (*place[1:], "align")))


def taught_texts(args: argparse.Namespace, share: float, adapted: bool) -> list[list[Taught]]:
    """Return the tokens and links of each text, or of the first pairs of each shard."""
    prior = EncoderPrior.from_pretrained(args.encoder, device=args.device, adapted=adapted)
    found = []
    for name, text in TEXTS.items():
        pairs, taught = pairs_of(args.data, name), []
        pairs = pairs[: round(share * len(pairs))]
        shards = max(1, round(share * text.shards))
        for shard in range(shards):
            taught += teach(prior, pairs[shard::shards])
        print(name, len(taught), f"{time.process_time() / 60:.1f} CPU minutes", flush=True)
        found.append(taught)
    return found


def learn(args: argparse.Namespace, share: float, adapted: bool) -> dict:
    """Teach the encoder as it was, each batch once, and write the file; return losses, and scores on dev."""
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    texts = taught_texts(args, share, adapted)
    counted = {name: len(text) for name, text in zip(TEXTS, texts, strict=True)}
    taught = batches([joined(text, rng) for text in texts], rng)
    rng.shuffle(taught)
    prior = EncoderPrior.from_pretrained(args.encoder, device=args.device, adapted=False)
    encoder = prior.reader.encoder.requires_grad_(False)
    probe = f"encoder.layer.{prior.layer - 1}.output.dense"
    row = encoder.get_submodule(probe).weight[0].half().cpu()
    before, changed = dev_scores(prior, args.data), changeable(encoder, args.rank)
    encoder.to(args.device)
    losses = follow(prior, taught, [half for one in changed.values() for half in (one.a, one.b)])
    halved = cut({name: (one.b @ one.a).detach().cpu() for name, one in changed.items()})
    tensors = {key: half for name, (a, b) in halved.items() for key, half in halves(name, a, KEPT * b).items()}
    save_file({"probe": row} | tensors, LEARNED_FILE, {"layer": str(prior.layer), "probe": probe} | CREDITS)
    scores = {}
    for kept in TRIED:
        for name, one in changed.items():
            a, b = (half.to(args.device) for half in halved.get(name, (0 * one.a, 0 * one.b)))
            one.a, one.b = nn.Parameter(a), nn.Parameter(kept * b)
        scores[str(kept)] = dev_scores(prior, args.data)
        print(kept, scores[str(kept)], flush=True)
    return {"pairs": counted, "losses": losses, "before": before, "after": scores}


def follow(prior: EncoderPrior, taught: Sequence[list[Taught]], learned: Sequence[nn.Parameter]) -> list[float]:
    """Take a step for each batch; return the losses."""
    losses: list[float] = []
    optimizer = torch.optim.AdamW(learned, weight_decay=0.0)
    for step, batch in enumerate(taught):
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / RISING) * max(LAST, 1 - step / len(taught))
        optimizer.zero_grad()
        with sdpa_kernel(SDPBackend.MATH):  # on a CPU the other one takes half of the step to go back
            loss = loss_of(prior, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        losses.append(loss.item())
        print(f"{step + 1} of {len(taught)}: {losses[-1]:.4f}, {time.process_time() / 60:.1f} CPU minutes", flush=True)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--encoder", type=Path, required=True, metavar="FOLDER", help="the default encoder")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("results/encoder_adapter.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rounds = [learn(args, share, adapted) for share, adapted in ((FIRST, False), (1.0, True))]
    config = {"rank": args.rank, "seed": args.seed, "encoder_sha256": sha256(args.encoder / WEIGHTS)}
    files = {file: args.data / file for text in TEXTS.values() for file in (text.source, text.target)}
    found = {"rounds": rounds, "cpu_minutes": time.process_time() / 60}
    write_json(records.record(config, files, args.device) | found, args.output)


if __name__ == "__main__":
    main()
