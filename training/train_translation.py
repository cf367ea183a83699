"""Train a translation model from parallel text: tokenizer, model, checkpoints, averaging, BLEU on dev and test.

    python training/train_translation.py --config configs/translation/multi30k_gated.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train_translation.py --config configs/translation/multi30k_gated.yaml --data DIR \
        --results results/gated.json training.output_dir=runs/gated training.seed=2 model.mask_penalty=0.05

`--resume` goes on from the last checkpoint in `training.output_dir`. Several processes give the same model (on CPUs
`torchrun --nproc_per_node 2`, as `accelerate launch` starts one process there):

    accelerate launch --num_processes 2 training/train_translation.py \
        --config configs/translation/multi30k_gated.yaml --data DIR training.tokens_per_batch=768

In the end `training.output_dir` holds the model (the mean of the last `average_last` checkpoints) with its tokenizer,
the translations of the test text, and `results.json`. `configs/reference_translation.yaml` explains every key.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    set_seed,
)

from hf_attncal.analysis.corpus import attention_report
from hf_attncal.data.corpora import load_parallel, tokenize_pairs
from hf_attncal.inference.translation import translate
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import BleuScore, bleu
from hf_attncal.training.arguments import AttnCalTrainingArguments
from hf_attncal.training.averaging import average_checkpoints, last_checkpoints
from hf_attncal.training.calibrated import AttnCalTrainer
from hf_attncal.training.settings import (
    SPLITS,
    TranslationConfig,
    build_model,
    build_tokenizer,
    load_config,
    parse_arguments,
    training_arguments,
)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the steps above; returns what `results.json` holds."""
    options = parse_arguments(__doc__, arguments)
    config = load_config(options.config, options.settings)
    args, output = start(options, config)
    splits = {name: load_parallel(config.data.corpus(name)) for name in SPLITS if getattr(config.data, name)}
    tokenizer = build_tokenizer(config.tokenizer, config.model.get("init_from"), args, splits["train"])
    model = build_model(config.model, tokenizer)
    trainer, reports = make_trainer(model, tokenizer, splits, config, args)
    started = time.monotonic()
    trainer.train(resume_from_checkpoint=True if options.resume else None)
    seconds = time.monotonic() - started
    trainer.accelerator.wait_for_everyone()  # the first process writes the checkpoints, all read them

    final, averaged = average(trainer, config)
    results = {
        "config": config.published(),
        "software": records.software(),
        "hardware": {**records.hardware(), "processes": args.world_size, "bf16": args.bf16},
        "data_sha256": config.data.hashes(),
        "sentence_pairs": {name: asdict(report) for name, report in reports.items()},
        "parameters": final.num_parameters(),
        "steps": trainer.state.global_step,
        "wall_seconds": seconds,
        "averaged_checkpoints": averaged,
    }
    for name in [name for name in splits if name != "train"]:
        hypotheses, score = evaluate(final, tokenizer, splits[name], config, progress=args.process_index == 0)
        results[name] = {"bleu": score.score, "signature": score.signature}
        if args.process_index == 0:
            (output / f"{name}.hypotheses.txt").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
            print(f"{name}: BLEU {score.score:.2f}  {score.signature}")
    if "valid" in splits and final.config.calibration is not None:
        dev = trainer.eval_dataset.select_columns(["input_ids", "labels"])
        batches = DataLoader(dev, args.per_device_eval_batch_size, collate_fn=trainer.data_collator)
        results["attention"] = attention_report(final, batches)
    history = trainer.state.log_history
    speeds = [entry["target_tokens_per_second"] for entry in history if "target_tokens_per_second" in entry]
    results |= {"target_tokens_per_second": sum(speeds) / max(1, len(speeds)), "log_history": history}
    if args.process_index == 0:
        final.save_pretrained(output)
        tokenizer.save_pretrained(output)
        records.write(results, output / "results.json", *filter(None, [options.results]))
    return results


def start(options: argparse.Namespace, config: TranslationConfig) -> tuple[AttnCalTrainingArguments, Path]:
    """The Trainer's arguments and the output folder, checked; the seed is set, the data are where `--data` says.

    Raises:
        ValueError: no text to train on, or a folder with checkpoints of another run.
    """
    if options.data:
        config.data.root = options.data
    args = training_arguments(config)
    output = Path(args.output_dir)
    if last_checkpoints(output, 1) and not options.resume:
        raise ValueError(f"{output} holds checkpoints of another run. Pass --resume, or another training.output_dir.")
    if config.data.train is None:
        raise ValueError("`data.train` must name the text to train on, got none.")
    set_seed(args.seed)
    return args, output


def make_trainer(
    model,
    tokenizer: PreTrainedTokenizerBase,
    splits: dict[str, Dataset],
    config: TranslationConfig,
    args: AttnCalTrainingArguments,
) -> tuple[AttnCalTrainer, dict[str, Any]]:
    """The Trainer on the tokenised training and dev text, with BLEU on dev; and which pairs were kept."""
    tokenized, reports = {}, {}
    for name in [name for name in splits if name != "test"]:
        tokenized[name], reports[name] = tokenize_pairs(splits[name], tokenizer, config.data.max_length)
        if args.process_index == 0:
            print(f"{name}: {reports[name]}")
    trainer = AttnCalTrainer(
        model=model,
        args=args,
        train_dataset=tokenized["train"],
        eval_dataset=tokenized.get("valid"),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
        processing_class=tokenizer,
        callbacks=[BleuCallback(splits["valid"], tokenizer, config)] if "valid" in splits else [],
    )
    return trainer, reports


def average(trainer: AttnCalTrainer, config: TranslationConfig) -> tuple[PreTrainedModel, list[str]]:
    """The mean of the last checkpoints as a model of its own, and their names; the last weights if none was saved."""
    paths = last_checkpoints(trainer.args.output_dir, config.average_last)
    weights = average_checkpoints(paths) if paths else trainer.model.state_dict()
    model = type(trainer.model).from_pretrained(None, config=trainer.model.config, state_dict=weights)
    beam = {"num_beams": config.evaluation.num_beams, "length_penalty": config.evaluation.length_penalty}
    model.generation_config.update(**beam)
    return model.to(trainer.args.device), [path.name for path in paths]


def evaluate(model, tokenizer, pairs: Dataset, config: TranslationConfig, **options) -> tuple[list[str], BleuScore]:
    """Translations of the sources of `pairs` and their BLEU; every process does its share, all get the result."""
    settings, state = config.evaluation, PartialState()
    options = {"num_beams": settings.num_beams, **options}
    share = translate(
        model,
        tokenizer,
        pairs["source"][state.process_index :: state.num_processes],
        batch_size=settings.batch_size,
        length_penalty=settings.length_penalty,
        max_new_tokens=settings.max_new_tokens,
        **options,
    )
    hypotheses = [""] * len(pairs)
    for index, part in enumerate(gather_object([share])):
        hypotheses[index :: state.num_processes] = part
    return hypotheses, bleu(hypotheses, pairs["target"], settings.bleu_tokenize)


class BleuCallback(TrainerCallback):
    """Adds BLEU on the first `dev_lines` dev sentences to every evaluation of the Trainer, as `eval_bleu`."""

    def __init__(self, dev: Dataset, tokenizer: PreTrainedTokenizerBase, config: TranslationConfig):
        self.dev, self.tokenizer, self.config = dev, tokenizer, config

    def on_evaluate(self, args, state, control, model=None, metrics=None, **kwargs):
        lines = self.config.evaluation.dev_lines
        dev = self.dev if lines is None else self.dev.select(range(min(lines, len(self.dev))))
        _, score = evaluate(model, self.tokenizer, dev, self.config, num_beams=self.config.evaluation.dev_beams)
        metrics["eval_bleu"] = score.score  # `metric_for_best_model` may name it
        entry = {"eval_bleu": score.score, "eval_bleu_signature": score.signature, "step": state.global_step}
        state.log_history.append(entry)
        if state.is_world_process_zero:
            tqdm.write(str(entry))


if __name__ == "__main__":
    main()
