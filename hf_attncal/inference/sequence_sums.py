"""Sum up the predictions of a causal language model for each sequence of a text."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor


@torch.no_grad()
def sequence_sums(model, batches: Iterable[Mapping[str, Tensor]]) -> np.ndarray:
    """Return sums over the predictions of each sequence; the model's mode is left as it is.

    Args:
        model: a `DiscreteTransformerForCausalLM`.
        batches: of `input_ids`, `attention_mask` and `labels`, (batch, length), right-padded.

    Returns:
        (sequences, 3), float64: negative log-probabilities in nats (without label smoothing), number of predictions,
        and number of tokens in their receptive fields: exact where attention has chosen (a hard model in evaluation
        mode), else expected.
    """
    rows = [np.zeros((0, 3))]
    for batch in batches:
        given = {name: tensor.to(model.device) for name, tensor in batch.items()}
        targets = given.pop("labels")[:, 1:]
        outputs = model(**given, output_receptive_fields=True)
        predicted = targets != -100
        losses = torch.nn.functional.cross_entropy(
            outputs.logits[:, :-1].float().transpose(1, 2), targets, ignore_index=-100, reduction="none"
        )
        sizes = outputs.target_receptive_fields[:, :-1].sum(dim=-1) * predicted
        sums = [part.double().sum(dim=1) for part in (losses, predicted, sizes)]
        rows.append(torch.stack(sums, dim=1).cpu().numpy())
    return np.concatenate(rows)
