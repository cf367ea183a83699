"""Shared parts of training tests: small text, settings of a run of four steps, a trainer of toy sentences."""

from pathlib import Path

import torch
import yaml
from datasets import Dataset
from english_german import generate_split
from helpers import TINY, scatter, write_linked_pairs

from hf_attncal import AttnCalTrainer, AttnCalTrainingArguments, MaskAlignConfig, MaskAlignModel

PAD, EOS = TINY["pad_token_id"], TINY["eos_token_id"]
ROOT = Path(__file__).parents[2]
WORDS = {"a": "ein", "dog": "hund", "cat": "kater", "runs": "läuft", "sleeps": "schläft", "big": "großer", ".": "."}
SENTENCES = [
    f"a {adjective}{noun} {verb} ."
    for adjective in ("", "big ", "big big ")
    for noun in ("dog", "cat", "dog dog")
    for verb in ("runs", "sleeps")
]
ALIGNER_SIZES = {"vocab_size": 11, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
ALIGNER_SIZES |= {"attention_heads": 2, "ffn_dim": 8}


# ---- a trainer ----


def toy_dataset(size: int = 40, seed: int = 0, longest: int = 9) -> Dataset:
    """Random sentence pairs of different lengths, both sides ending in eos."""
    generator = torch.Generator().manual_seed(seed)

    def sentence() -> list[int]:
        length = int(torch.randint(1, longest, (), generator=generator))
        return [*torch.randint(3, TINY["vocab_size"], (length,), generator=generator).tolist(), EOS]

    return Dataset.from_dict({name: [sentence() for _ in range(size)] for name in ("input_ids", "labels")})


def collate(examples: list[dict]) -> dict[str, torch.Tensor]:
    """Padded batch: what `DataCollatorForSeq2Seq` gives, without a tokenizer."""

    def pad(name: str, value: int) -> torch.Tensor:
        rows = [torch.tensor(example[name]) for example in examples]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)

    sources = pad("input_ids", PAD)
    return {"input_ids": sources, "attention_mask": (sources != PAD).long(), "labels": pad("labels", -100)}


def make_trainer(folder: Path | str, model, dataset: Dataset | None = None, **arguments) -> AttnCalTrainer:
    """A trainer on the CPU that logs every step, with the order of the examples fixed by the seed."""
    defaults = {
        "output_dir": str(folder),
        "use_cpu": True,
        "max_steps": 5,
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    args = AttnCalTrainingArguments(**defaults | arguments)
    dataset = toy_dataset() if dataset is None else dataset
    return AttnCalTrainer(model=model, args=args, train_dataset=dataset, data_collator=collate)


def weights(model) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def logged(trainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def tiny_aligner(**config) -> MaskAlignModel:
    torch.manual_seed(3)
    model = MaskAlignModel(MaskAlignConfig(**ALIGNER_SIZES, dropout=0.0, **config)).double()
    scatter(model)
    return model


# ---- a run ----


def german(sentence: str) -> str:
    return " ".join(WORDS[word] for word in sentence.split())


def translation_settings(folder: Path, **model) -> Path:
    """A config file for a model of a few thousand parameters and four optimiser steps."""
    transformer = {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "max_position_embeddings": 32,
    }
    values = {
        "data": {name: {"source": f"{name}.en", "target": f"{name}.de"} for name in ("train", "dev", "test")},
        "tokenizer": {"vocab_size": 60},
        "model": {
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "label_smoothing": 0.1,
            **({} if model.get("backbone") == "luong" else transformer),
            **model,
        },
        "training": {
            "output_dir": str(folder / "run"),
            "max_steps": 4,
            "tokens_per_step": 256,
            "tokens_per_batch": 128,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_steps": 1,
            "disable_tqdm": True,
        },
        "evaluation": {"bleu_tokenize": "none", "dev_lines": 3, "num_beams": 2},
        "average_last": 3,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"job": "translation"} | values), encoding="utf-8")
    return path


def adapter_settings(base: Path, **adapter) -> list[str]:
    """Arguments of the script for four optimiser steps."""
    values = {
        "data": {name: {"source": f"{name}.en", "target": f"{name}.de"} for name in ("train", "dev", "test")},
        "model": {"checkpoint": str(base), "label_smoothing": 0.1},
        "adapter": adapter,
        "training": {
            "output_dir": str(base.parent / "run"),
            "max_steps": 4,
            "tokens_per_step": 256,
            "tokens_per_batch": 128,
            "learning_rate": 2e-2,
            "logging_steps": 1,
            "eval_strategy": "steps",
            "eval_steps": 4,
            "save_steps": 2,
            "disable_tqdm": True,
            "bf16": False,
        },
        "evaluation": {"bleu_tokenize": "none", "dev_lines": 3, "num_beams": 2},
    }
    path = base.parent / "config.yaml"
    path.write_text(yaml.safe_dump({"job": "adapter"} | values), encoding="utf-8")
    return ["--config", str(path), "--data", str(base.parent / "data")]


def write_corpus(folder: Path, train: int = 600, dev: int = 20, test: int = 60) -> Path:
    """A synthetic language: text, gold links, and links of the training text."""
    split = generate_split(train, dev, test, seed=3)
    write_linked_pairs(folder, train=split.train, dev=split.valid, test=split.test)
    return folder
