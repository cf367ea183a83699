"""The mode of a module, training or evaluation, for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, and back into its own at the end."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
