"""Does the mask network learn with little text? Small gated models, with and without `mask_cost`.

    python experiments/masks_learn.py --pairs 2000 --seeds 10
    python experiments/masks_learn.py --pairs 10000 --steps 400 --name multi30k --source train.en.gz \
        --target train.de.gz

The text is generated, or the first pairs of two files, long ones among them. Attention is of no use for some hundred
steps, in which masks may be lost. Each seed trains once for each value of `mask_cost`. Masks are of use where a
training would not warn that they have learned nothing. Written is results/masks_learn/[<name>_]<pairs>.json, after
each run; what is there is not run again.
"""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

from committed import RESULTS
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase, set_seed

from hf_attncal.data.corpora import load_parallel, tokenize_pairs
from hf_attncal.data.strict_yaml import load_yaml
from hf_attncal.data.synthetic.english_german import generate_split
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.training.calibrated import AttnCalTrainer
from hf_attncal.training.folder import Run
from hf_attncal.training.job import build_tokenizer, warn_of_idle_masks
from hf_attncal.training.seq2seq import build_seq2seq_model
from hf_attncal.training.settings_yaml import merge_settings
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
# What real text has besides: more words, and longer pairs. The model is smaller: some hundred steps in half a minute.
REAL = """
tokenizer: {vocab_size: 2000}
model: {d_model: 64, encoder_ffn_dim: 128, decoder_ffn_dim: 128, max_position_embeddings: 256}
training: {tokens_per_batch: 1024, learning_rate: 0.005}
"""
COSTS = (None, 0.1)
LOGGED = ("step", "nmt_loss", "mask_loss", "mask_penalty", "mask_mean")


def settings_of(real: bool) -> dict:
    """Return the settings for real or generated text."""
    values = load_yaml(SETTINGS)
    if real:
        merge_settings(values, load_yaml(REAL))
    return values


def generated(count: int) -> Dataset:
    """Return `count` different generated pairs."""
    rows = [(" ".join(pair.source), " ".join(pair.target)) for pair in generate_split(count, 0, 0).train]
    return Dataset.from_dict(dict(zip(("source", "target"), zip(*rows, strict=True), strict=True)))


def first_pairs(source: str, target: str, count: int) -> Dataset:
    """Return the first `count` pairs of two files.

    Raises:
        ValueError: they have fewer.
    """
    text = load_parallel({"source": [source], "target": [target]})
    if len(text) < count:
        raise ValueError(f"`--pairs` must be at most {len(text)}, the pairs of {source}, got {count}.")
    return text.select(range(count))


def configured(values: dict, folder: str, steps: int, seed: int, cost: float | None) -> TranslationConfig:
    """Return the settings of one run."""
    own = {"training": {"output_dir": folder, "max_steps": steps, "seed": seed}, "model": {"mask_cost": cost}}
    values = json.loads(json.dumps(values))
    merge_settings(values, own)
    return TranslationConfig.make(values)


def prepare(text: Dataset, values: dict) -> tuple[PreTrainedTokenizerBase, Dataset]:
    """Return the tokenizer, which every run shares, and the token ids of the text."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(values, folder, 1, 1, None)
        tokenizer = build_tokenizer(config, Run(config.arguments()), text)
    tokenized, _ = tokenize_pairs(text, tokenizer, config.model["max_position_embeddings"])
    return tokenizer, tokenized


def history(
    values: dict, tokenizer: PreTrainedTokenizerBase, tokenized: Dataset, steps: int, seed: int, cost: float | None
) -> list[dict[str, float]]:
    """Train one model, and return what its mask network came to after every 50 steps."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(values, folder, steps, seed, cost)
        set_seed(seed)
        model = build_seq2seq_model(config, tokenizer)
        trainer = AttnCalTrainer(
            model=model,
            args=config.arguments(),
            train_dataset=tokenized,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model),
            processing_class=tokenizer,
        )
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
    parser.add_argument("--name", help="of the text of --source and --target, for the name of the results")
    parser.add_argument("--source", help="source side of real text; without it, text is generated")
    parser.add_argument("--target", help="target side of real text")
    args = parser.parse_args(arguments)
    if len({value is None for value in (args.name, args.source, args.target)}) > 1:
        parser.error("--name, --source and --target go together")
    real = args.source is not None
    values = settings_of(real)
    files = {f"{args.name}/{Path(file).name}": file for file in (args.source, args.target)} if real else {}
    config = {"settings": values, "pairs": args.pairs, "steps": args.steps}
    path = RESULTS / "masks_learn" / f"{args.name + '_' if real else ''}{args.pairs}.json"
    result = records.record(config, files) | {"runs": []}
    if path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if earlier["config"] != config:
            parser.error(f"{path} has other settings: {earlier['config']}, now {config}. Remove it first.")
        result["runs"] = earlier["runs"]
    text = first_pairs(args.source, args.target, args.pairs) if real else generated(args.pairs)
    tokenizer, tokenized = prepare(text, values)
    for seed in range(1, args.seeds + 1):
        for cost in COSTS:
            if any((run["seed"], run["mask_cost"]) == (seed, cost) for run in result["runs"]):
                continue
            began = time.monotonic()
            entries = history(values, tokenizer, tokenized, args.steps, seed, cost)
            useful = [entry["step"] for entry in entries if of_use(entry)]
            seconds = round(time.monotonic() - began)
            run = {"seed": seed, "mask_cost": cost, "useful_steps": useful, "useful": of_use(entries[-1])}
            result["runs"].append(run | {"history": entries, "seconds": seconds})
            write_json(result, path)
            print(f"seed {seed}, mask_cost {cost}: of use at {useful}, mean mask {entries[-1]['mask_mean']:.3f}")


if __name__ == "__main__":
    main()
