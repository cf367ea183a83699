"""How far an encoder is believed, by how often the words of both sides were read, beside one table for all words.

    python experiments/belief_by_frequency.py --data ROOT --encoder NAME bicici-deen wpt03-enfr dermit-derm-500

r of `belief.py` is counted for each band of frequency (1, 2 to 3, 4 to 9, 10 and more readings of a word, folded) and
drawn to that of all words by so many links (`Way.links`) and unlinked cells (thirty times as many): by the rarer word
of a cell ("rarer"), or for the words of each side, of which the geometric mean counts ("sides"). "and share" has the
weight of the encoder in the mean of both judges by the same table, too. All are `align quick --encoder` on the dev
pairs and other text. Of more than `READ` other pairs the encoder reads the dev pairs alone (`align run --encoder`),
and `--aligner` may have learned the others before (`align train --config hmm`).
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from adapting import Pairs
from torch import Tensor

from hf_attncal import WordAligner
from hf_attncal.alignment import mask_align
from hf_attncal.alignment.belief import MOST, Belief, joined
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.quick import quick_aligner
from hf_attncal.alignment.sources import Words
from hf_attncal.data.corpora import load_parallel
from hf_attncal.data.folding import fold
from hf_attncal.data.gold import Gold
from hf_attncal.files import sha256, write_json
from hf_attncal.layouts import DEFAULT_ENCODER, WEIGHTS
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate, paired_interval

# Languages, dev pairs, other text and how many pairs of it.
SETS = {
    "bicici-deen": ("de", "en", "bicici-deen/dev", "multi30k/train.{}.gz", 400),
    "wpt03-enfr": ("en", "fr", "wpt03-enfr/dev", "wpt03-enfr/train.100k.{}.gz", 1000),
    "wpt-roen": ("ro", "en", "wpt-roen/dev", "wpt-roen/test.{}", 124),
    "xlwa-enhu": ("en", "hu", "xlwa/en-hu/dev", "xlwa/en-hu/silver-train.{}", 1002),
} | {
    f"dermit-derm-{size}": ("de", "rm", "dermit-derm/dev", "dermit-derm/train.{}.gz", size)
    for size in (500, 5000, 20000)
}
READ = 2000  # other pairs, of more of which the encoder reads none
LARGEST = np.array([1, 3, 9])  # readings of a word of each band but the last
BANDS = len(LARGEST) + 1


@dataclass(frozen=True)
class Way:
    """A way to believe: which words have a table of their own, its prior in links, and whether shares follow it."""

    of: str | None = None
    links: float = 30.0
    shares: bool = False


WAYS = {
    "one table": Way(),
    "rarer": Way("rarer"),
    "sides": Way("sides"),
    "sides and share": Way("sides", shares=True),
}


class BandedBelief(Belief):
    """A belief whose bins are those of e in each band of both words, `source band * BANDS + target band`."""

    def __init__(self, way: Way = WAYS["one table"]):
        super().__init__()
        self.way, self.size = way, len(self.ratio)
        self.tables = torch.ones(BANDS * BANDS, self.size)
        self.seen = torch.zeros(2, BANDS * BANDS, self.size, dtype=torch.double)

    def bins(self, cells: Tensor) -> Tensor:
        whole = cells.float().floor()
        return super().bins(cells.float() - whole) + self.size * whole.int()

    def factor(self, bins: Tensor) -> Tensor:
        table = 1 - self.strength + self.strength * self.tables.clamp(max=MOST)
        return table.flatten()[bins]

    def count(self, bins: Tensor, linked: Tensor) -> None:
        weights = linked.double(), 1 - linked.double()
        self.seen += torch.stack([bins.bincount(of, self.seen[0].numel()) for of in weights]).view_as(self.seen)

    def learn(self) -> None:
        self._seen = self.seen.sum(1)
        apart = (self._seen[1] + 1) / (self._seen[1].sum() + self.size)
        super().learn()
        bands = self.seen.view(2, BANDS, BANDS, self.size)
        if self.way.of is None:
            self.tables = self.ratio.expand_as(self.tables)
        elif self.way.of == "sides":
            sides = (self._drawn(bands.sum(dim), apart) for dim in (2, 1))
            source, target = sides
            self.tables = (source[:, None] * target).sqrt().flatten(0, 1)
        else:
            places = torch.arange(BANDS)
            rarer = torch.minimum(places[:, None], places).flatten()
            of_rarer = torch.zeros(2, BANDS, self.size, dtype=torch.double).index_add_(1, rarer, self.seen)
            self.tables = self._drawn(of_rarer, apart)[rarer]
        self.seen = torch.zeros_like(self.seen)

    def _drawn(self, seen: Tensor, apart: Tensor) -> Tensor:
        """Return r of bands, (bands, bins), from links and cells without, (2, bands, bins), drawn to those of all."""
        found = [
            (of + links * prior) / (of.sum(dim=1, keepdim=True) + links)
            for of, links, prior in zip(
                seen, (self.way.links, 30 * self.way.links), (self.ratio.double() * apart, apart), strict=True
            )
        ]
        return (found[0] / found[1]).float()

    def shares(self, cells: Tensor) -> Tensor:
        """Return the weight of the encoder beside counts for each cell, (B, T, S)."""
        trust = self.strength * ((self.tables[:, -1] - 1) / (MOST - 1)).clamp(0, 1)
        return 0.5 * trust[cells.floor().long()]


class BandedPrior(EncoderPrior):
    """An encoder whose e has the bands of both words before the point."""

    def forget(self) -> None:
        super().forget()
        self.belief = BandedBelief()
        self.read: tuple[Counter, Counter] = (Counter(), Counter())

    def cells(self, pairs: Sequence[Words]) -> list[np.ndarray]:
        found = []
        for cells, pair in zip(super().cells(pairs), pairs, strict=True):
            bands = [
                np.searchsorted(LARGEST, [of_side[fold(word)] for word in side])
                for side, of_side in zip(pair, self.read, strict=True)
            ]
            whole = BANDS * bands[0][:, None] + bands[1]
            found.append((np.minimum(cells.astype(np.float32), 0.9995) + whole).astype(np.float32))
        return found

    def remember(self, pairs: Sequence[Words]) -> list[np.ndarray]:
        self._remembered = dict(zip(pairs, super().cells(pairs), strict=True))
        return self.cells(pairs)


def judged(source, found: Sequence[Tensor], cells: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return what `MaskAlignSource._judged` does, of cells with bands."""
    belief, share, cells = source.prior.belief, source.prior.share, joined(cells).to(found[0])
    encoder = cells - cells.floor()
    shares = belief.shares(cells) if belief.way.shares else torch.full_like(encoder, share)
    others = encoder, encoder.mT, (1 - encoder.sum(dim=2)).clamp(min=0), (1 - encoder.sum(dim=1)).clamp(min=0)
    weights = shares, shares.mT, share, share
    return tuple((1 - w) * one + w * other for w, one, other in zip(weights, found, others, strict=True))


def measure(encoder: BandedPrior, gold: Gold, others: Pairs, learned: Path | None) -> dict[str, dict]:
    """Return AER of every way to believe, and how far it is from that of one table, by name."""
    encoder.forget()
    pairs = [*gold.pairs, *others]
    for side, of_side in enumerate(encoder.read):
        of_side.update(fold(word) for pair in pairs for word in pair[side].split())
    counts = None
    if len(others) > READ:
        counts = quick_aligner(pairs) if learned is None else WordAligner.from_pretrained(learned, device="cpu")
    systems, first, strength = {}, None, None
    for name, way in WAYS.items():
        encoder.belief = BandedBelief(way)
        if strength is not None:
            encoder.belief.strength = strength
        if counts is None:
            aligner = quick_aligner(pairs, encoder=encoder)
        else:
            aligner = counts
            aligner.believe(encoder)
        links = [one.links for one in aligner.align(gold.pairs)]
        strength, first = encoder.belief.strength, first or links
        systems[name] = {"aer": alignment_error_rate(gold.links, links, check_indices=False).aer}
        if links is not first:
            difference = systems[name]["aer"] - systems["one table"]["aer"]
            against = {"difference": difference, "interval": paired_interval(gold.links, first, links)}
            systems[name]["against_one_table"] = against
        print(name, systems[name], flush=True)
    return systems


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=SETS, metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER[0], metavar="NAME", help="folder or Hub name")
    parser.add_argument(
        "--aligner", type=Path, metavar="FOLDER", help="that has learned the other pairs of a large set"
    )
    parser.add_argument("--output", type=Path, default=Path("results/belief_by_frequency"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    mask_align.MaskAlignSource._judged = judged
    encoder = BandedPrior.from_pretrained(args.encoder)
    weights = Path(args.encoder) / WEIGHTS
    told = sha256(weights) if weights.is_file() else ":".join(DEFAULT_ENCODER)
    for name in args.names:
        source, target, dev, other, size = SETS[name]
        files = {end: args.data / f"{dev}.{end}" for end in (source, target, "align")}
        paths = {side: args.data / other.format(end) for side, end in (("source", source), ("target", target))}
        text = load_parallel({side: str(path) for side, path in paths.items()})
        others = list(zip(text["source"][:size], text["target"][:size], strict=True))
        print(name, len(others), flush=True)
        systems = measure(encoder, Gold.read(*files.values()), others, args.aligner)
        config = {"experiment": "belief_by_frequency", "set": name, "others": len(others), "encoder_sha256": told}
        write_json(records.record(config, files | paths) | {"systems": systems}, args.output / f"{name}.json")


if __name__ == "__main__":
    main()
