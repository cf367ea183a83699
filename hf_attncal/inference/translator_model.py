"""A model that CTranslate2 runs where one of transformers is expected: it generates, scores and tells attention.

`attncal export MODEL --format ctranslate2` writes its folder inside MODEL (`hub/translator_export.py`), and MODEL
keeps the tokenizer, the configuration and what was learned of its links. Here is what the commands ask of a model.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.models.bart.modeling_bart import shift_tokens_right

from hf_attncal.data.batching import padded
from hf_attncal.io.extras import need
from hf_attncal.layouts import CTRANSLATE2, EXPORTED

from .files import blamed
from .generation import end_tokens, length_to_end
from .loading import load_config, load_tokenizer
from .running import Running
from .seals import sealed

VOCABULARY = "shared_vocabulary.json"
# Options of `generate()` -> those of CTranslate2; and those that may have one value only.
_OPTIONS = {
    "num_beams": "beam_size",
    "length_penalty": "length_penalty",
    "max_new_tokens": "max_decoding_length",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
}
_SAID = {
    "do_sample": False,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "max_length": None,
    "use_cache": True,
}


class TranslatorModel:
    """An encoder-decoder that CTranslate2 runs.

    Args:
        folder: folder of an export, inside the folder of the model.
        config: configuration of that model.
        generation_config: settings of the generation.
        device: such as "cpu" or "cuda:0".
        threads: threads of the CPU; None for as many as PyTorch has.
        of_model: folder of the model that was exported; None: the one that `folder` lies in.

    Attributes:
        told_layers: the decoder layer whose attention the export tells: of the heads that make links, on average.

    Raises:
        ModuleNotFoundError: CTranslate2 is not installed.
        ValueError: the folder is damaged, or the model is another one now.
    """

    training = False
    device = torch.device("cpu")  # of the tensors that it takes and gives

    def __init__(
        self,
        folder: Path,
        config,
        generation_config,
        *,
        device: str = "cpu",
        threads: int | None = None,
        of_model: Path | None = None,
    ):
        need("ctranslate2")
        import ctranslate2

        self.folder, self.of_model = folder, str(of_model or folder.parent)
        with sealed(folder / EXPORTED, Path(self.of_model)) as values:
            self.told_layers, self.heads = [values["layer"]], values["heads"]
        with blamed(folder):
            kind, _, index = device.partition(":")
            self._translator = ctranslate2.Translator(
                str(folder),
                device=kind,
                device_index=int(index or 0),
                inter_threads=1,
                intra_threads=threads or torch.get_num_threads(),
            )
            self._tokens: list[str] = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        self.config, self.generation_config, self.dtype = config, generation_config, self._translator.compute_type

    @property
    def base_model(self) -> "TranslatorModel":
        """The model itself: it has no head to leave out."""
        return self

    def eval(self) -> "TranslatorModel":
        """Return the model, which has no other mode."""
        return self

    def train(self, mode: bool = True) -> "TranslatorModel":
        """Return the model, which cannot be trained."""
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """Return no tensors: CTranslate2 has them."""
        return {}

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return the decoder inputs that predict `labels`, shifted as by Marian and BART."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    def __call__(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor, **_: Any
    ) -> SimpleNamespace:
        """Read a batch with teacher forcing.

        Returns:
            `cross_attentions`: (batch, heads, steps, source) of the told layer, each head the average of those that
            make links; None for the other layers.
        """
        sources = self._named(input_ids, attention_mask)
        # The last step reads the last token: it generates one more, whatever that is.
        prefixes = [self._names(row) for row in decoder_input_ids[:, 1:].tolist()]
        steps = decoder_input_ids.shape[1]
        results = self._translator.translate_batch(
            sources,
            target_prefix=prefixes,
            beam_size=1,
            max_decoding_length=steps,
            min_decoding_length=steps,
            return_attention=True,
            return_end_token=True,
            max_batch_size=0,
        )
        weights = torch.zeros(len(sources), steps, input_ids.shape[1])
        for row, result in enumerate(results):
            told = torch.tensor(result.attention[0])[:steps]
            weights[row, : len(told), : told.shape[1]] = told
        layers: list[Tensor | None] = [None] * self.config.decoder_layers
        heads = self.config.decoder_attention_heads
        layers[self.told_layers[0]] = weights[:, None].expand(-1, heads, -1, -1)
        return SimpleNamespace(cross_attentions=tuple(layers))

    def generate(self, input_ids: Tensor, attention_mask: Tensor, **options: Any) -> Tensor:
        """Generate as `generate()` of transformers; the rows begin with the decoder's start.

        Raises:
            ValueError: an option that CTranslate2 does not have.
        """
        sources, first = self._named(input_ids, attention_mask), options.pop("forced_bos_token_id", None)
        first = self.generation_config.forced_bos_token_id if first is None else first
        forced = {} if first is None else {"target_prefix": [[self._tokens[first]]] * len(sources)}
        results = self._translator.translate_batch(
            sources, return_end_token=True, max_batch_size=0, **forced, **self._asked(options)
        )
        start, padding = self.generation_config.decoder_start_token_id, self.generation_config.pad_token_id
        rows = [[start, *map(self._ids.__getitem__, names)] for result in results for names in result.hypotheses]
        return padded(rows, padding)[0]

    def scores(self, inputs: Mapping[str, Tensor], output: Tensor) -> Iterator[tuple[list[int], list[float]]]:
        """Yield the generated tokens of each text, to the end of sentence, and the logarithms of their probabilities.

        Args:
            inputs: `input_ids` and `attention_mask`.
            output: output of `generate` for them.
        """
        ends = end_tokens(self.generation_config)
        rows = [row[: length_to_end(row, ends)] for row in output[:, 1:].tolist()]
        # It scores an end behind each text, which is left out where the text has one, or was cut off.
        texts = [self._names([token for token in row if token not in ends]) for row in rows]
        scores = self._translator.score_batch(self._named(**inputs), texts, max_batch_size=0)
        for row, result in zip(rows, scores, strict=True):
            yield row, result.log_probs[: len(row)]

    def _asked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        saved = self.generation_config
        options = {"no_repeat_ngram_size": saved.no_repeat_ngram_size or 0} | dict(options)
        options.setdefault("repetition_penalty", saved.repetition_penalty or 1.0)
        shortest = options.pop("min_length", None) or (options.pop("min_new_tokens", None) or 0) + 1
        options.pop("min_new_tokens", None)
        # Hypotheses are finished as soon as there are as many as beams; transformers' own bound is another.
        options.pop("early_stopping", None)
        asked: dict[str, Any] = {"min_decoding_length": max(0, shortest - 1)}
        for name, value in options.items():
            if name in _OPTIONS:
                asked |= {} if value is None else {_OPTIONS[name]: value}
            elif name not in _SAID or value != _SAID[name]:
                raise ValueError(
                    f"`{name}` is no option of CTranslate2 here, got {value!r}. Leave it out, or translate with "
                    f"{self.of_model}."
                )
        return asked

    def _named(self, input_ids: Tensor, attention_mask: Tensor) -> list[list[str]]:
        rows = zip(input_ids.tolist(), attention_mask.tolist(), strict=True)
        return [[self._tokens[token] for token, real in zip(*row, strict=True) if real] for row in rows]

    def _names(self, ids: list[int]) -> list[str]:
        return [self._tokens[token] for token in ids]


def load_translator(name: str | Path, running: Running, device: str) -> tuple[TranslatorModel, Any]:
    """Load an export and the tokenizer of its model.

    Args:
        name: folder of the export, in that of the model.
        running: device and limits; an export has its own precision.
        device: such as "cpu" or "cuda:0".

    Raises:
        ValueError: a file is damaged, `--dtype` is given, or the model is another one now.
    """
    if running.dtype is not None:
        raise ValueError(f"its precision was chosen when it was exported. Leave out --dtype {running.dtype}.")
    folder = Path(name)
    model, trusted = folder.parent, running.trust_remote_code
    config = load_config(model, trust_remote_code=trusted)
    tokenizer = load_tokenizer(model, config, trust_remote_code=trusted)
    generation = GenerationConfig.from_pretrained(model)
    return TranslatorModel(folder, config, generation, device=device, threads=running.threads), tokenizer


def is_exported(name: object) -> bool:
    """Return whether a name is that of a folder which `attncal export --format ctranslate2` wrote."""
    return isinstance(name, str | Path) and Path(name).name == CTRANSLATE2 and (Path(name) / EXPORTED).is_file()
