"""What a model loses when CTranslate2 runs it: BLEU and links of a trained one, in float32 and in int8.

    python experiments/translator_quality.py --models RUNS

The model is a guided Marian, trained in a minute on the synthetic English-German pairs of `attncal demo`, whose
links are known. Translated are 300 other pairs, with 1 and 4 beams. AER is that of the guided head on these pairs,
read with teacher forcing, and `linked` says how far the links of the translations that both write are the same.
Seconds are CPU seconds of one thread, for all lines.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from hf_attncal import export, train, translate
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.alignment.sources import saved_settings
from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import GoldAlignment, format_links
from hf_attncal.data.strict_yaml import load_yaml
from hf_attncal.data.synthetic.english_german import generate_split, write_pairs
from hf_attncal.files import write_json
from hf_attncal.inference.opening import load_model
from hf_attncal.inference.running import Running
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import bleu
from hf_attncal.report.demonstration import DEMO_SETTINGS

PAIRS = {"train": 20_000, "valid": 100, "test": 300}
FORMATS = {"float32": "ctranslate2", "int8": "ctranslate2-int8"}


def train_model(folder: Path, pairs, steps: int) -> None:
    """Train the demo's model with a guided head in place of a calibration."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for name in ("train", "valid"):
        sides = [folder.parent / f"{name}.{side}" for side in ("en", "de", "align")]
        write_pairs(getattr(pairs, name), *sides[:2])
        sides[2].write_text("".join(f"{format_links(pair.links)}\n" for pair in getattr(pairs, name)))
        files.append([str(side) for side in sides])
    values = load_yaml(DEMO_SETTINGS)
    del values["model"]["calibration"]
    values["training"]["max_steps"] = steps
    settings = [f"{part}.{name}={value}" for part, of_part in values.items() for name, value in of_part.items()]
    (source, target, links), dev = files
    train(*settings, model="guided", source=source, target=target, links=links, dev=dev, output=folder)


def measured(name: Path, pairs: Sequence, beams: Sequence[int], running: Running) -> tuple[dict, dict]:
    """Return BLEU, links and seconds of a model, and its answers for each number of beams."""
    lines, references = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
    loaded = load_model(str(name), running, beams=None)
    settings = saved_settings(name if saved_settings(name) else name.parent)
    gold = Gold(list(zip(lines, references, strict=True)), [GoldAlignment(pair.links, pair.links) for pair in pairs])
    result = {"aer": asdict(score_aligner(WordAligner(*loaded, settings), gold, bootstrap=1000)), "beams": {}}
    answers = {}
    for number in beams:
        before = time.process_time()
        texts = translate(loaded, lines, beams=number, running=running)
        seconds = time.process_time() - before
        answers[number] = translate(name, lines, beams=number, running=running, format="json", alignments="-")
        result["beams"][str(number)] = {"bleu": asdict(bleu(texts, references, "none")), "cpu_seconds": seconds}
    return result, answers


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, metavar="RUNS", help="folder of the model and its text")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--output", type=Path, default=Path("results/translator_quality.json"), metavar="FILE")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    pairs, folder, running = generate_split(**PAIRS), args.models / "translator", Running(threads=1)
    result = records.record({"steps": args.steps, "pairs": PAIRS, "beams": args.beams}, {})
    if not folder.exists():
        train_model(folder, pairs, args.steps)
    found, expected = measured(folder, pairs.test, args.beams, running)
    result["systems"] = {"transformers": found}
    for precision, name in FORMATS.items():
        done = export(folder, format=name)
        found, answers = measured(done.path, pairs.test, args.beams, running)
        for number, of_beams in found["beams"].items():
            both = [
                (ours.alignment.links, theirs.alignment.links)
                for ours, theirs in zip(expected[int(number)], answers[int(number)], strict=True)
                if ours.text == theirs.text
            ]
            of_beams["same_text"] = len(both) / len(pairs.test)
            of_beams["linked"] = sum(len({*a} & {*b}) for a, b in both) / max(
                1, sum(len({*a} | {*b}) for a, b in both)
            )
        result["systems"][f"CTranslate2, {precision}"] = found | {"log_probability": done.difference}
    write_json(result, args.output)
    for system, found in result["systems"].items():
        print(system, f"AER {100 * found['aer']['aer']:.1f}", found["beams"])


if __name__ == "__main__":
    main()
