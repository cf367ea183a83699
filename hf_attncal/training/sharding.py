"""Training with FSDP2: every process holds a part of the weights, and of the moments of the optimizer."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel, Trainer


@contextmanager
def sharded_by_layers(trainer: Trainer) -> Iterator[None]:
    """Let Accelerate shard the layers that the model names, and all the rest together, within the block.

    It would shard the input embedding and the output layer apart, but in an encoder-decoder a third module has the
    same table, which torch refuses to see in two groups.

    Raises:
        ValueError: the processes were started for FSDP1, or with an adapter on the model.
    """
    model, version = trainer.model, trainer.accelerator.state.fsdp_plugin.fsdp_version
    if version != 2:
        raise ValueError(f"`fsdp_version` must be 2, got {version}. Launch with configs/accelerate/fsdp2.yaml.")
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            "`distributed_type` must be MULTI_GPU to train an adapter, got FSDP, which shards whole models only. "
            "Launch with configs/accelerate/ddp.yaml: what is trained is small."
        )
    names = ("get_input_embeddings", "get_output_embeddings")
    vars(model).update(dict.fromkeys(names, lambda: None))
    try:
        yield
    finally:
        for name in names:
            vars(model).pop(name)


def in_one_piece(model: nn.Module) -> nn.Module:
    """Return a model with all its weights, on every process: itself, or a new one of the class that FSDP2 sharded."""
    if not isinstance(model, FSDPModule):
        return model
    weights = model.state_dict()
    whole = type(model).__bases__[1](model.config)  # FSDP2 makes a class of its own from this one
    whole.load_state_dict({n: w.full_tensor() if isinstance(w, DTensor) else w for n, w in weights.items()})
    if whole.can_generate():
        whole.generation_config = model.generation_config
    return whole.to(model.device)
