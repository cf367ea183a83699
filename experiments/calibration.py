"""Does calibration improve translations? BLEU, reliability and ECE beside what calibration does to attention.

    python experiments/calibration.py train multi30k --data DIR --variant baseline \
        --variant calibration=gated,mask_penalty=0.003 --variant calibration=gated,mask_inputs=trained --epochs 10
    python experiments/calibration.py collect multi30k --data DIR runs/gated1 runs/baseline1 ...
    python experiments/calibration.py figure docs/images/calibration.png

`train` trains all variants at once in one process, on the same batches and with the same random numbers, on the GPU if
there is one. After each epoch it writes results/calibration/CORPUS/VARIANT_seedN.json; the baseline comes first, since
the others are compared with it. A variant is `baseline` or fields of `AttnCalMarianConfig`. `collect` writes the same
files for folders that training/train.py has left, and skips those that are not finished. `figure` draws the difference
to the baseline over alpha and over mass, of all files and of the runs at alpha 0.1 in results/converged.

A file has BLEU, chrF and the paired test against the baseline of its seed for dev and test; on dev, with teacher
forcing, reliability, entropy, mass, masks, gates and both divergences (`attention_report`), and the expected
calibration error of the probability of the most probable token.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import committed
import numpy as np
import torch
import yaml
from converged import BASELINE, BOOTSTRAP
from paired_bleu import paired_bleu
from sacrebleu.metrics import CHRF

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.drawing.plots import Picture
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import batches_of_pairs, evaluating, padded_batch, teacher_forced
from hf_attncal.inference.translation import translate_texts
from hf_attncal.inference.word_attention import attention_report
from hf_attncal.io.files import read_lines, write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.probabilities import probability_score
from hf_attncal.models.losses import IGNORE_INDEX
from hf_attncal.training.calibrated import MEANS, mask_network_parameters
from hf_attncal.training.token_batches import TokenBatchSampler

# Corpus -> split -> names of a source and a target file, and of further ones.
CORPORA = {
    "multi30k": {
        "train": ("train.en.gz", "train.de.gz"),
        "dev": ("val.en", "val.de"),
        "test": ("test_2016_flickr.en", "test_2016_flickr.de"),
    },
    "dermit-derm": {
        "train": ("train.de.gz", "train.rm.gz"),
        "dev": ("mt-valid.de", "mt-valid.rm"),
        "test": ("mt-test.de", "mt-test.rm"),
    },
    "wpt03-enfr": {
        "train": ("train.100k.en.gz", "train.100k.fr.gz", "train.rest.en.gz", "train.rest.fr.gz"),
        "dev": ("mt-valid.en.gz", "mt-valid.fr.gz"),
        "test": ("mt-test.en.gz", "mt-test.fr.gz"),
    },
}
Pairs = tuple[list[str], list[str]]
DEFAULT_ALPHA = AttnCalMarianConfig().mask_penalty


def variant_of(model: dict[str, Any]) -> str:
    """Return the name of a variant from the fields of its configuration: its switches, and alpha."""
    if model.get("calibration") is None:
        return "output_gate" if model.get("output_gate") else BASELINE
    marks = {"trained": model.get("mask_inputs") == "trained", "renormalized": model.get("renormalize")}
    names = [model["calibration"], *(name for name, is_on in marks.items() if is_on)]
    return f"{'_'.join(names)}_alpha_{model.get('mask_penalty', DEFAULT_ALPHA):g}"


# ---- measuring ----


@torch.no_grad()
def measured(model, tokenizer, dev: Pairs) -> dict[str, Any]:
    """Return what attention and probabilities of a model are on dev, with teacher forcing."""
    confidences, hits = [], []
    with evaluating(model):
        for _, batch in batches_of_pairs(model, tokenizer, *dev):
            inputs, labels = teacher_forced(model, batch)
            best, tokens = model(**inputs, use_cache=False).logits.float().softmax(dim=-1).max(dim=-1)
            for row, real in enumerate(labels != IGNORE_INDEX):
                confidences.append(best[row, real].tolist())
                hits.append((tokens == labels)[row, real].tolist())
    probabilities = probability_score(confidences, hits)
    attention = {}
    if model.config.calibration is not None:
        attention["attention"] = attention_report(model, (b for _, b in batches_of_pairs(model, tokenizer, *dev)))
    return {"ece": probabilities.ece, "confidence": probabilities.mean, "right": probabilities.right, **attention}


def scored(
    hypotheses: dict[str, list[str]], baseline: dict[str, list[str]] | None, texts: dict[str, Pairs], tokenize: str
) -> dict[str, Any]:
    """Return BLEU, chrF and the comparison with the baseline of each split."""
    scores = {}
    for split, lines in hypotheses.items():
        references = texts[split][1]
        compared = asdict(paired_bleu(lines, (baseline or hypotheses)[split], references, tokenize, BOOTSTRAP))
        if baseline is None:
            compared = {name: compared[name] for name in ("score", "signature")}
        scores[split] = {"bleu": compared.pop("score"), "chrf": CHRF().corpus_score(lines, [references]).score}
        scores[split] |= compared
    return scores


# ---- training ----


@dataclass
class Run:
    """A model in training, with its optimiser and its log."""

    model: AttnCalMarianMTModel
    steps: int
    learning_rate: float
    warmup: int
    epochs: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0

    def __post_init__(self):
        masks = mask_network_parameters(self.model)
        ids = {id(parameter) for parameter in masks}
        # The gradients of the two objectives are clipped separately, as the Trainer does.
        self.groups = [[p for p in self.model.parameters() if p.requires_grad and id(p) not in ids], masks]
        trained = [parameter for group in self.groups for parameter in group]
        self.optimizer = torch.optim.AdamW(trained, lr=self.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self.sums: dict[str, torch.Tensor] = {}

    def learn(self, batch: dict[str, torch.Tensor], seed: int) -> None:
        """Take one optimiser step; the rate rises, and falls to 0 at the last step."""
        self.step += 1
        rate = min(self.step / self.warmup, (self.steps - self.step) / max(1, self.steps - self.warmup))
        self.optimizer.param_groups[0]["lr"] = self.learning_rate * max(rate, 0.0)
        torch.manual_seed(seed)
        device = self.model.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            outputs = self.model(**batch)
        outputs.loss.backward()
        for group in self.groups:
            torch.nn.utils.clip_grad_norm_(group, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.model.set_annealing_step(self.step)
        for name in ("nmt_loss", *MEANS):
            if outputs.get(name) is not None:
                self.sums[name] = self.sums.get(name, 0.0) + outputs[name].detach()

    def means(self, steps: int) -> dict[str, float]:
        """Return the means over the last steps, and begin anew."""
        means, self.sums = {name: float(total) / steps for name, total in self.sums.items()}, {}
        return means


def train(options: argparse.Namespace, texts: dict[str, Pairs], files: dict[str, Path]) -> None:
    """Train all variants at once, and write their results after each epoch."""
    sources, targets = (side[: options.pairs] for side in texts["train"])
    tokenizer = train_bpe_tokenizer([*sources, *targets], options.vocabulary)
    ids = [tokenizer(side).input_ids for side in (sources, targets)]
    kept = [n for n, pair in enumerate(zip(*ids, strict=True)) if max(map(len, pair)) <= options.longest]
    rows = [[np.array(side[n]) for n in kept] for side in ids]
    sampler = TokenBatchSampler([(len(s), len(t)) for s, t in zip(*rows, strict=True)], options.tokens, options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runs = {}
    for fields in sorted(options.variants, key=lambda fields: variant_of(fields) != BASELINE):
        torch.manual_seed(options.seed)
        config = AttnCalMarianConfig(**sizes(options, tokenizer), **fields)
        model = AttnCalMarianMTModel(config).to(device).train()
        runs[variant_of(fields)] = Run(model, options.epochs * len(sampler), options.learning_rate, options.warmup)
    began = time.monotonic()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(sampler):
            tensors = padded_batch(
                runs[next(iter(runs))].model, tokenizer, *([side[n] for n in batch] for side in rows)
            )
            tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
            for run in runs.values():
                run.learn(tensors, hash((options.seed, epoch, number)) % 2**31)
        baseline = None
        for name, run in runs.items():
            hypotheses = {
                split: translate_texts(run.model, tokenizer, texts[split][0], num_beams=options.beams, batch_size=256)
                for split in ("dev", "test")
            }
            run.model.train()
            scores = scored(hypotheses, baseline, texts, options.tokenize)
            baseline = hypotheses if name == BASELINE else baseline
            found = {**scores, **measured(run.model, tokenizer, texts["dev"]), "training": run.means(len(sampler))}
            run.epochs.append({"epoch": epoch + 1, "minutes": (time.monotonic() - began) / 60, **found})
            settings = {"data": {"train_pairs": len(kept)}, "training": {"seed": options.seed, "steps": run.step}}
            settings["model"] = {**sizes(options, tokenizer), **settings_of(run.model.config)}
            write(options, settings, files, found | {"epochs": run.epochs}, device)
            print(f"epoch {epoch + 1}, {name}: test BLEU {scores['test']['bleu']:.2f}", flush=True)


def sizes(options: argparse.Namespace, tokenizer) -> dict[str, Any]:
    """Return the sizes of a model, the same for all variants."""
    both = {"layers": options.layers, "attention_heads": options.heads, "ffn_dim": 2 * options.width}
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in both.items()} | {
        **{"d_model": options.width, "vocab_size": len(tokenizer), "max_position_embeddings": 2 * options.longest},
        **{"activation_function": "relu", "scale_embedding": True, "init_std": 0.06, "label_smoothing": 0.1},
        **{"dropout": options.dropout, "attn_implementation": "eager", "pad_token_id": tokenizer.pad_token_id},
        **{"eos_token_id": tokenizer.eos_token_id, "forced_eos_token_id": None},
        "decoder_start_token_id": tokenizer.pad_token_id,
    }


def settings_of(config) -> dict[str, Any]:
    """Return the fields of a configuration that make a variant."""
    names = ("calibration", "mask_penalty", "mask_inputs", "mask_cost", "renormalize", "output_gate")
    return {name: getattr(config, name) for name in names}


# ---- finished runs ----


def collect(options: argparse.Namespace, texts: dict[str, Pairs], files: dict[str, Path]) -> None:
    """Write the results of finished trainings; baselines are found by their seed."""
    runs = [(folder, json.loads((folder / "results.json").read_text())["config"]) for folder in finished(options)]
    baselines = {run["training"]["seed"]: folder for folder, run in runs if variant_of(run["model"]) == BASELINE}
    for folder, run in runs:
        translations = {
            name: {split: read_lines(where / f"{split}.hypotheses.txt") for split in ("dev", "test")}
            for name, where in (("own", folder), ("baseline", baselines.get(run["training"]["seed"], folder)))
        }
        is_baseline = variant_of(run["model"]) == BASELINE or translations["own"] is translations["baseline"]
        baseline = None if is_baseline or run["training"]["seed"] not in baselines else translations["baseline"]
        model, tokenizer = load_seq2seq(folder, dtype="float32")
        found = scored(translations["own"], baseline, texts, run["evaluation"]["bleu_tokenize"])
        weights = {f"{folder.name}/{path.name}": path for path in sorted(folder.glob("*.safetensors"))}
        write(options, run, files | weights, found | measured(model, tokenizer, texts["dev"]), "cpu")
        print(f"{folder.name}: test BLEU {found['test']['bleu']:.2f}", flush=True)


def finished(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the folders with the results of a training, and report the others."""
    for folder in options.folders:
        if (folder / "results.json").exists() and (folder / "model.safetensors").exists():
            yield folder
        else:
            print(f"{folder} is not finished", flush=True)


def write(options: argparse.Namespace, run: dict[str, Any], files, found: dict[str, Any], device) -> None:
    """Write the results file of a run; `run` has the sections `data`, `training` and `model`."""
    variant, seed = variant_of(run["model"]), run["training"]["seed"]
    config = {"experiment": "calibration", "corpus": options.name or options.corpus, "variant": variant}
    config |= {name: run[name] for name in ("data", "training", "model")}
    folder = committed.RESULTS / "calibration" / (options.name or options.corpus)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(records.record(config, files, device) | found, folder / f"{variant}_seed{seed}.json")


# ---- the figure ----

DRAWN = {  # name -> folders of results
    "English-German, 10,000 pairs": ["multi30k_10000", "multi30k_10000_other"],
    "English-German, 29,000 pairs": ["multi30k"],
    "German-Romansh, 20,000 pairs": ["dermit-derm", "dermit-derm_bfloat16", "dermit-derm_bfloat16_other"],
    "English-French, 200,000 pairs": ["wpt03-enfr_200000"],
}
ALPHAS = (0.001, 0.003, 0.01, 0.03, 0.1)
MARKERS = {"gated": ".", "annealed": "x", "fixed": "+"}
Difference = tuple[float, float | None]


def differences(corpora: Sequence[str], kind: str) -> dict[float, list[Difference]]:
    """Return test BLEU minus the baseline's and the mass of the top layer, for each alpha and run of a kind."""
    found: dict[float, list[Difference]] = defaultdict(list)
    for corpus in corpora:
        for path in sorted((committed.RESULTS / "calibration" / corpus).glob(f"{kind}_alpha_*.json")):
            run = json.loads(path.read_text())
            found[float(run["config"]["variant"].removeprefix(f"{kind}_alpha_"))].append(
                (run["test"]["minus_baseline"], run["attention"]["mass"][-1])
            )
    if kind == "gated" and 0.1 not in found and (committed.RESULTS / "converged" / corpora[0]).is_dir():
        paired = committed.read(f"converged/{corpora[0]}/paired")["paired"]
        found[0.1] = [(paired[f"gated_seed{seed}"]["test"]["minus_baseline"], None) for seed in (1, 2, 3)]
    return found


def figure(path: Path) -> None:
    """Draw differences to the baseline over alpha (gated, a line through the means, a mark a run) and over mass."""
    picture = Picture(figsize=(9.6, 3.6), layout="constrained")
    by_alpha, by_mass = picture.subplots(1, 2, sharey=True)
    for shift, (name, corpora) in zip((0.9, 0.97, 1.03, 1.1), DRAWN.items(), strict=True):
        found = sorted(differences(corpora, "gated").items())
        means = [np.mean([difference for difference, _ in runs]) for _, runs in found]
        (line,) = by_alpha.plot([alpha * shift for alpha, _ in found], means, marker="_", markersize=14, label=name)
        for alpha, runs in found:
            by_alpha.plot(
                [alpha * shift] * len(runs), [run[0] for run in runs], ".-", color=line.get_color(), linewidth=1
            )
        for kind, marker in MARKERS.items():
            runs = [run for of_alpha in differences(corpora, kind).values() for run in of_alpha]
            masses = [(mass, difference) for difference, mass in runs if mass is not None]
            by_mass.plot(*np.array(masses).reshape(-1, 2).T, marker, color=line.get_color())
    by_alpha.set(xscale="log", xlabel="alpha (weight of the mask penalty)", ylabel="test BLEU minus the baseline's")
    by_alpha.set_xticks(ALPHAS, [f"{alpha:g}" for alpha in ALPHAS])
    by_alpha.minorticks_off()
    by_mass.set(xlabel="mass of rows, top layer (x: annealed, +: fixed)")
    for axes in (by_alpha, by_mass):
        axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    picture.legend(*by_alpha.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    picture.savefig(path, dpi=150)


def fields_of(variant: str) -> dict[str, Any]:
    """Return the fields of a configuration that `--variant` names."""
    pairs = [] if variant == BASELINE else variant.split(",")
    return {name: yaml.safe_load(value) for name, _, value in (pair.partition("=") for pair in pairs)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("figure", help=figure.__doc__)
    drawing.add_argument("path", type=Path, help="PNG to write")
    for command in (train, collect):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.set_defaults(run=command)
        sub.add_argument("corpus", choices=CORPORA)
        sub.add_argument("--data", type=Path, required=True, help="folder of the corpus")
        sub.add_argument("--name", help="folder of results/calibration [default: the corpus]")
        if command is collect:
            sub.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
            continue
        sub.add_argument("--variant", dest="variants", action="append", type=fields_of, required=True)
        sub.add_argument("--tokenize", default="none", help="tokenisation of BLEU")
        numbers = {
            "seed": 1,
            "epochs": 3,
            "pairs": None,
            "vocabulary": 4000,
            "longest": 128,
            "tokens": 4096,
            "beams": 4,
        }
        for name, number in (numbers | {"width": 256, "layers": 4, "heads": 4, "warmup": 300}).items():
            sub.add_argument(f"--{name}", type=int, default=number)
        sub.add_argument("--learning-rate", type=float, default=0.002)
        sub.add_argument("--dropout", type=float, default=0.1)
    options = parser.parse_args(arguments)
    if options.command == "figure":
        return figure(options.path)
    splits = [split for split in CORPORA[options.corpus] if split != "train" or options.run is train]
    files = {name: options.data / name for split in splits for name in CORPORA[options.corpus][split]}
    lines = {name: read_lines(path) for name, path in files.items()}

    def side_of(split: str, side: int) -> list[str]:
        return [line for name in CORPORA[options.corpus][split][side::2] for line in lines[name]]

    texts = {split: (side_of(split, 0), side_of(split, 1)) for split in splits}
    options.run(options, texts, files)


if __name__ == "__main__":
    main()
