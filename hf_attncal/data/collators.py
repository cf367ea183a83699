"""From examples to batches."""

import torch

from .batching import padded


class LanguageCollator:
    """Right-padded batches of what `tokenize_plain` returns, as causal language models take them.

    Labels are the tokens themselves, as the models shift them; -100 at padding, and at the first token, which nothing
    predicts, so that the labels that count are as many as the predictions.

    Args:
        pad_token_id: what fills the shorter sequences.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        ids, mask = padded([example["input_ids"] for example in examples], self.pad_token_id)
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, 0] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class AlignmentCollator:
    """Right-padded batches of what `tokenize_for_alignment` returns, as `MaskAlignModel` takes them.

    Args:
        pad_token_id: what fills the shorter sentences.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor | bool]:
        batch: dict[str, torch.Tensor | bool] = {"return_loss": True}
        for ids, mask in (("input_ids", "attention_mask"), ("target_input_ids", "target_attention_mask")):
            batch[ids], batch[mask] = padded([example[ids] for example in examples], self.pad_token_id)
        if "links" in examples[0]:
            links = torch.zeros(len(examples), batch["target_input_ids"].shape[1], batch["input_ids"].shape[1])
            for row, example in enumerate(examples):
                pairs = torch.as_tensor(example["links"], dtype=torch.long).view(-1, 2)
                links[row, pairs[:, 1], pairs[:, 0]] = 1
            batch["links"] = links
        return batch
