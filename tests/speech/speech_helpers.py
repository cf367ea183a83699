"""A tiny random Whisper, and speech whose words are tones."""

import numpy as np
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from hf_attncal.speech.timed_words import RATE, SpokenWindow, Word
from hf_attncal.speech.transcribing import Processor

TONES = {"low": 200.0, "mid": 700.0, "high": 1800.0, "top": 4000.0}
SECONDS = 2


def tiny_whisper() -> tuple[WhisperForConditionalGeneration, Processor]:
    """Return a Whisper for windows of two seconds, and its processor."""
    words = ["<end>", "<start>", "<unk>", *TONES, *(f"word{number}" for number in range(4)), "<notime>"]
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<end>", pad_token="<end>", bos_token="<start>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=len(words),
        d_model=32,
        num_mel_bins=16,
        max_source_positions=50 * SECONDS,
        max_target_positions=40,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIZES.items()},
        **{f"{name}_token_id": 0 for name in ("pad", "eos")},
        **{f"{name}_token_id": 1 for name in ("bos", "decoder_start")},
        begin_suppress_tokens=None,
        init_std=0.3,
    )
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(
        decoder_start_token_id=1,
        eos_token_id=0,
        pad_token_id=0,
        no_timestamps_token_id=len(words) - 1,  # timestamps would follow it
        is_multilingual=False,
        max_length=20,
        return_timestamps=False,
    )
    return model, Processor(WhisperFeatureExtractor(feature_size=16, chunk_length=SECONDS), tokenizer)


SIZES = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}


def tone(word: str, seconds: float) -> np.ndarray:
    return np.sin(2 * np.pi * TONES[word] * np.arange(int(RATE * seconds)) / RATE).astype(np.float32)


def spoken_tones(seed: int, number: int) -> list[SpokenWindow]:
    """Return windows of four tones in any order, with pauses and some noise."""
    rng = np.random.default_rng(seed)
    windows = []
    for _ in range(number):
        audio, words = [np.zeros(int(RATE * rng.uniform(0.1, 0.3)), np.float32)], []
        for text in rng.permutation(list(TONES)):
            start = sum(map(len, audio)) / RATE
            audio.append(tone(text, rng.uniform(0.16, 0.3)))
            words.append(Word(str(text), start, sum(map(len, audio)) / RATE))
            audio.append(np.zeros(int(RATE * rng.choice([0.0, 0.15])), np.float32))
        samples = np.concatenate(audio)
        noise = 1e-3 * rng.normal(size=len(samples))
        windows.append(SpokenWindow((samples + noise).astype(np.float32), words))
    return windows
