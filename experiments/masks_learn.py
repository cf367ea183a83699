"""Does the mask network learn with little text? Small gated models on generated pairs, with and without `mask_cost`.

    python experiments/masks_learn.py --pairs 2000 --seeds 10

Attention is of no use for some hundred steps, in which masks may be lost. Each seed trains once for each value of
`mask_cost`. Masks are of use where a training would not warn that they have learned nothing.
Written is results/masks_learn/<pairs>.json, after each run; what is there is not run again.
"""

import argparse
import json
import tempfile
import time
import warnings

from committed import RESULTS
from datasets import Dataset
from transformers import set_seed

from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.synthetic.english_german import generate_split
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.training.folder import Run
from hf_attncal.training.job import build_tokenizer, warn_of_idle_masks
from hf_attncal.training.seq2seq import build_seq2seq_model, make_trainer
from hf_attncal.training.settings import load_yaml
from hf_attncal.training.translation import TranslationConfig

# The model of `attncal demo`, with fewer subwords.
SETTINGS = """
tokenizer: {vocab_size: 400}
model: {d_model: 128, encoder_layers: 2, decoder_layers: 2, encoder_attention_heads: 4, decoder_attention_heads: 4,
  encoder_ffn_dim: 256, decoder_ffn_dim: 256, max_position_embeddings: 128, activation_function: relu,
  scale_embedding: true, init_std: 0.06, dropout: 0.1, label_smoothing: 0.1, calibration: gated}
training: {tokens_per_batch: 512, learning_rate: 0.004, warmup_steps: 0.1, lr_scheduler_type: linear,
  adam_beta2: 0.98, bf16: false, logging_steps: 50, save_strategy: no, report_to: none, disable_tqdm: true}
"""
COSTS = (None, 0.1)
LOGGED = ("step", "nmt_loss", "mask_loss", "mask_penalty", "mask_mean")


def text_of(count: int) -> Dataset:
    """Return `count` different generated pairs."""
    rows = [(" ".join(pair.source), " ".join(pair.target)) for pair in generate_split(count, 0, 0).train]
    return Dataset.from_dict(dict(zip(("source", "target"), zip(*rows, strict=True), strict=True)))


def history(text: Dataset, steps: int, seed: int, cost: float | None) -> list[dict[str, float]]:
    """Train one model, and return what its mask network came to after every 50 steps."""
    values = load_yaml(SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        values["training"] |= {"output_dir": folder, "max_steps": steps, "seed": seed}
        values["model"]["mask_cost"] = cost
        config = TranslationConfig.make(values)
        run = Run(config.arguments())
        tokenizer = build_tokenizer(config, run, text)
        set_seed(seed)
        model = build_seq2seq_model(config, tokenizer)
        tokenized, _ = tokenize_pairs(text, tokenizer, config.data.max_length)
        trainer = make_trainer(model, tokenizer, {"train": text}, {"train": tokenized}, config, run.args)
        trainer.train()
    return [{name: entry[name] for name in LOGGED} for entry in trainer.state.log_history if "mask_loss" in entry]


def of_use(entry: dict[str, float]) -> bool:
    """Return whether a training that ends here would not warn of its masks."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_of_idle_masks([entry])
    return not said


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--seeds", type=int, default=10, help="seeds 1 to this number")
    args = parser.parse_args(arguments)
    path = RESULTS / "masks_learn" / f"{args.pairs}.json"
    config = {"settings": load_yaml(SETTINGS), "pairs": args.pairs, "steps": args.steps}
    earlier = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    result = records.record(config, {}) | {"runs": earlier}
    text = text_of(args.pairs)
    for seed in range(1, args.seeds + 1):
        for cost in COSTS:
            if any((run["seed"], run["mask_cost"]) == (seed, cost) for run in result["runs"]):
                continue
            began = time.monotonic()
            entries = history(text, args.steps, seed, cost)
            useful = [entry["step"] for entry in entries if of_use(entry)]
            seconds = round(time.monotonic() - began)
            run = {"seed": seed, "mask_cost": cost, "useful_steps": useful, "useful": of_use(entries[-1])}
            result["runs"].append(run | {"history": entries, "seconds": seconds})
            write_json(result, path)
            print(f"seed {seed}, mask_cost {cost}: of use at {useful}, mean mask {entries[-1]['mask_mean']:.3f}")


if __name__ == "__main__":
    main()
