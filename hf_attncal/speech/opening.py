"""Load Whisper with an observer, its processor and the learned probability, by their names."""

from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoFeatureExtractor, AutoModelForSpeechSeq2Seq

from hf_attncal.adapters.loading import adapter_config, with_adapter
from hf_attncal.inference.files import blamed
from hf_attncal.inference.loading import load_whole
from hf_attncal.inference.opening import choose_device, load_errors, log_model
from hf_attncal.inference.running import Running
from hf_attncal.layouts import TIMES_FILE

from .unspoken import BY_NULL, Unspoken


class Processor(NamedTuple):
    """Feature extractor and tokenizer of Whisper, under the names of transformers' processor."""

    feature_extractor: Any
    tokenizer: Any


def load_speech(name: str, observer: str, running: Running) -> tuple[Any, Processor, Unspoken]:
    """Load Whisper, its processor, and an observer with its learned probability.

    Args:
        name: folder or Hub name of the model.
        observer: folder of the observer.
        running: device and precision.

    Raises:
        CommandError: a folder is missing or of another kind, or the device cannot be used.
    """
    with load_errors(name):
        model, processor = load_whisper(name, running.dtype)
    with load_errors(observer):
        with_adapter(model, adapter_config(observer), observer)
        unspoken = Unspoken.load(observer) if (Path(observer) / TIMES_FILE).exists() else BY_NULL
    device: Any = choose_device(running)
    model.to(device).eval()
    log_model(name, model)
    return model, processor, unspoken


def load_whisper(name: str | Path, dtype: Any = None) -> tuple[Any, Processor]:
    """Load Whisper and its processor on the CPU.

    Raises:
        OSError, ValueError: see `load_whole`; or there is no feature extractor.
    """
    model, tokenizer = load_whole(AutoModelForSpeechSeq2Seq, name, dtype=dtype)
    with blamed(f"preprocessor_config.json in {name}"):
        return model, Processor(AutoFeatureExtractor.from_pretrained(name), tokenizer)
