"""Collators: batches of tokenised examples for our models."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import DataCollatorForSeq2Seq

from .batching import padded


class NullCollator(DataCollatorForSeq2Seq):
    """Collator for a model with `uam`: extends a target shorter than its source to the source's length.

    The model's `null_token_id` follows the end of sentence, in the labels and in the decoder's input. Lengths include
    special tokens. Arguments are the same as in `DataCollatorForSeq2Seq`; `model` is required.

    Raises:
        ValueError: the model has no `null_token_id`.
    """

    def __init__(self, tokenizer, model, **options) -> None:
        super().__init__(tokenizer, model, **options)
        self.null_token_id = model.config.null_token_id
        if self.null_token_id is None:
            raise ValueError(
                "`null_token_id` must be the token that extends targets, got None. Set it in the model's "
                "configuration, or use `DataCollatorForSeq2Seq` for a model without `uam`."
            )

    def __call__(self, features: Sequence[dict], return_tensors: str | None = None):
        if features[0].get("labels") is not None:
            features = [self._extended(example) for example in features]
        return super().__call__(features, return_tensors)

    def _extended(self, example: dict) -> dict:
        source = np.asarray(example.get("attention_mask", np.ones(len(example["input_ids"])))).sum()
        targets = np.asarray(example["labels"])
        targets = targets[: 1 + np.flatnonzero(targets != -100).max(initial=-1)]  # without padding
        nulls = [self.null_token_id] * (int(source) - len(targets))
        return {**example, "labels": [*targets.tolist(), *nulls]}


class CopyCollator(DataCollatorForSeq2Seq):
    """Collator for a model with `copy`, for examples of `hf_attncal.data.tokenizer.CopyTokenizer`.

    Adds `extended_input_ids`, padded like `input_ids`, and drops `copied_words`.
    """

    def __call__(self, features: Sequence[dict], return_tensors: str | None = None):
        added = ("extended_input_ids", "copied_words")
        plain = [{name: value for name, value in example.items() if name not in added} for example in features]
        batch = super().__call__(plain, return_tensors)
        extended = np.concatenate([np.asarray(example["extended_input_ids"]) for example in features])
        batch["extended_input_ids"] = batch["input_ids"].clone()
        batch["extended_input_ids"][batch["attention_mask"].bool()] = torch.from_numpy(extended)
        return batch


class CopyNullCollator(CopyCollator, NullCollator):
    """Collator for a model with both `copy` and `uam`."""


class LinkCollator:
    """Collator for guided alignment: adds `links` to the batches of another collator, as a matrix for the model.

    The `links` of an example list source and target token of each link in turn, as returned by `tokenize_pairs`.
    Batches without `links` are unchanged.

    Args:
        collator: `DataCollatorForSeq2Seq` or one of its subclasses here.
    """

    def __init__(self, collator: DataCollatorForSeq2Seq) -> None:
        self.collator = collator
        self.tokenizer = collator.tokenizer  # a Trainer saves it

    def __call__(self, features: Sequence[dict], **options):
        if "links" not in features[0]:
            return self.collator(features, **options)
        plain = [{name: value for name, value in example.items() if name != "links"} for example in features]
        batch = self.collator(plain, **options)
        shape = *batch["labels"].shape, batch["input_ids"].shape[1]
        starts = None
        if self.tokenizer.padding_side == "left":
            real = batch["attention_mask"] != 0, batch["labels"] != -100
            starts = torch.stack([side.int().argmax(dim=1) for side in real], dim=1)
        return batch | {"links": cells_of_links(features, shape, starts)}


def cells_of_links(examples: Sequence[dict], shape: Sequence[int], starts: torch.Tensor | None = None) -> torch.Tensor:
    """Return a matrix with 1 where a target token is linked to a source token, else 0, (batch, target, source).

    Args:
        examples: examples with `links`, source and target token of each link in turn.
        shape: shape of the result.
        starts: positions of the first source and target token of each example, (batch, 2). None: 0.
    """
    cells = torch.zeros(tuple(shape))
    for row, example in enumerate(examples):
        pairs = torch.as_tensor(example["links"], dtype=torch.long).view(-1, 2)
        if starts is not None:
            pairs = pairs + starts[row]
        cells[row, pairs[:, 1], pairs[:, 0]] = 1
    return cells


class LanguageCollator:
    """Collator with right padding for causal language models, for examples of `tokenize_plain`.

    Labels are the tokens themselves, since the models shift them. They are -100 at padding and at the first token,
    which is not predicted: the number of labels is the number of predictions.

    Args:
        pad_token_id: padding token.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        ids, mask = padded([example["input_ids"] for example in examples], self.pad_token_id)
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, 0] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class AlignmentCollator:
    """Collator with right padding for `MaskAlignModel`, for examples of `tokenize_for_alignment`.

    Args:
        pad_token_id: padding token.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor | bool]:
        batch: dict[str, torch.Tensor] = {}
        for ids, mask in (("input_ids", "attention_mask"), ("target_input_ids", "target_attention_mask")):
            batch[ids], batch[mask] = padded([example[ids] for example in examples], self.pad_token_id)
        if "links" in examples[0]:
            shape = *batch["target_input_ids"].shape, batch["input_ids"].shape[1]
            batch["links"] = cells_of_links(examples, shape)
        return {"return_loss": True, **batch}
