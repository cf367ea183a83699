"""Whether `attncal align select ENCODER ENCODER` takes the encoder that aligns best: agreement beside AER.

    python experiments/encoder_choice.py --data ROOT --encoder NAME bicici-deen wpt-roen dermit-derm xlwa-enhu

The encoders are one and what makes it worse: its states in other layers, noise added to its weights (so many times
the standard deviation of each matrix), no weights of its own ("random"), and what it has learned from links
("learned"). Each reads the annotated dev pairs alone, without their links. "agreement" is what `align select` goes by,
"aer" that of `align quick --encoder` on these pairs, "encoder_aer" that of its links alone (e above `ABOVE`).

`choices` are all pairs of them: where `align select` is sure, in at least 95 % of the samples, and where it is not,
how many there are, in how many the one with more agreement has the lower AER, and how much the AER of the taken one is
above that of the other in the worst.
"""

import argparse
import copy
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import torch
from encoder_prior import links_above
from transformers import AutoModel

from hf_attncal.alignment.encoder import EncoderStates
from hf_attncal.alignment.encoder_choice import ranked_encoders
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.quick import quick_aligner
from hf_attncal.data.gold import Gold
from hf_attncal.files import sha256, write_json
from hf_attncal.inference.loading import load_whole
from hf_attncal.layouts import DEFAULT_ENCODER, WEIGHTS
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate

# Languages and annotated pairs of each set.
SETS = {
    "bicici-deen": ("de", "en", "bicici-deen/dev"),
    "wpt03-enfr": ("en", "fr", "wpt03-enfr/dev"),
    "wpt-roen": ("ro", "en", "wpt-roen/dev"),
    "dermit-derm": ("de", "rm", "dermit-derm/dev"),
} | {f"xlwa-en{name}": ("en", name, f"xlwa/en-{name}/dev") for name in ("hu", "ru", "sl", "it", "et", "da")}
LAYERS, NOISE, SURE = (2, 4, 7, 8, 10, 12), (0.3, 0.6), 0.95
CHOSEN = 7  # the layer of what is not one of `LAYERS`


def encoders(name: str) -> Iterator[tuple[str, EncoderPrior]]:
    """Yield the encoder and what makes it worse, by name."""
    yield "learned", EncoderPrior.from_pretrained(name)
    whole, tokenizer = load_whole(AutoModel, name, finite=False)
    for layer in LAYERS:
        yield f"layer {layer}", EncoderPrior(copy.deepcopy(whole), tokenizer, EncoderStates(layer))
    for noise in (*NOISE, None):
        model, chance = copy.deepcopy(whole), torch.Generator().manual_seed(1)
        for weight in model.encoder.parameters() if noise else model.parameters():
            if weight.dim() == 2:
                by_chance = weight.data.std() * torch.randn(weight.shape, generator=chance)
                weight.data = weight.data + noise * by_chance if noise else by_chance
        yield f"noise {noise}" if noise else "random", EncoderPrior(model, tokenizer, EncoderStates(CHOSEN))


def measure(encoder: EncoderPrior, gold: Gold) -> dict[str, float]:
    """Return the AER of an encoder that has read nothing else, with counts and alone; it stays as it has met them."""
    aligner = quick_aligner(gold.pairs, encoder=encoder)
    cells = encoder.cells([tuple(tuple(side.split()) for side in pair) for pair in gold.pairs])
    links = {"aer": [one.links for one in aligner.align(gold.pairs)], "encoder_aer": [*map(links_above, cells)]}
    return {name: alignment_error_rate(gold.links, found, check_indices=False).aer for name, found in links.items()}


def choices(met: dict, rows: dict[str, dict]) -> dict[str, dict]:
    """Return how the choice between every two encoders went, by whether `align select` was sure."""
    found = {way: {"pairs": 0, "right": 0, "most_lost": 0.0} for way in ("sure", "unsure")}
    for names in combinations(met, 2):
        ranked = ranked_encoders(names, [EncoderStates(CHOSEN)] * 2, [met[name] for name in names])
        row = found["sure" if ranked.sure >= SURE else "unsure"]
        lost = rows[ranked[0].name]["aer"] - rows[ranked[1].name]["aer"]
        row["pairs"] += 1
        row["right"] += lost <= 0
        row["most_lost"] = max(row["most_lost"], lost)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=SETS, metavar="PAIR", help=f"of {', '.join(SETS)}")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER[0], metavar="NAME", help="folder or Hub name")
    parser.add_argument("--output", type=Path, default=Path("results/encoder_choice"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights = Path(args.encoder) / WEIGHTS
    told = sha256(weights) if weights.is_file() else ":".join(DEFAULT_ENCODER)
    files = {
        name: {end: args.data / f"{SETS[name][2]}.{end}" for end in (*SETS[name][:2], "align")} for name in args.names
    }
    golds = {name: Gold.read(*paths.values()) for name, paths in files.items()}
    rows: dict[str, dict] = {name: {} for name in args.names}
    met: dict[str, dict] = {name: {} for name in args.names}
    for kind, encoder in encoders(args.encoder):
        for name, gold in golds.items():
            encoder.forget()
            rows[name][kind] = measure(encoder, gold)
            met[name][kind] = encoder.met
            print(name, kind, rows[name][kind], flush=True)
    for name, of_set in met.items():
        ranked = ranked_encoders(list(of_set), [EncoderStates(CHOSEN)] * len(of_set), list(of_set.values()))
        for one in ranked:
            rows[name][one.name] |= {"agreement": one.agreement, "interval": one.interval}
        lowest = min(row["aer"] for row in rows[name].values())
        first = {
            "name": ranked[0].name,
            "sure": ranked.sure,
            "above_the_lowest": rows[name][ranked[0].name]["aer"] - lowest,
        }
        found = {"encoders": rows[name], "first": first, "choices": choices(of_set, rows[name])}
        config = {"experiment": "encoder_choice", "pair": name, "encoder_sha256": told}
        write_json(records.record(config, files[name]) | found, args.output / f"{name}.json")
        print(name, found["first"], found["choices"], flush=True)


if __name__ == "__main__":
    main()
