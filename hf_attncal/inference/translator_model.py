"""Model that CTranslate2 runs, with the methods of a transformers model: it generates, scores and returns attention.

`attncal export MODEL --format ctranslate2` writes its folder inside MODEL (`hub/translator_export.py`). MODEL keeps
the tokenizer, the configuration and the files learned for its links. Only the methods that the commands use are here.
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
# Options of `generate()` -> options of CTranslate2; and options that may have only one value.
_OPTIONS = {
    "num_beams": "beam_size",
    "length_penalty": "length_penalty",
    "max_new_tokens": "max_decoding_length",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
}
_FIXED = {
    "do_sample": False,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "max_length": None,
    "use_cache": True,
}


class TranslatorModel:
    """Encoder-decoder that CTranslate2 runs.

    Args:
        folder: folder of an export, inside the folder of the model.
        config: configuration of that model.
        generation_config: settings of the generation.
        device: device, such as "cpu" or "cuda:0".
        threads: number of CPU threads. Default: None, PyTorch's number.
        of_model: folder of the exported model. Default: None, the parent of `folder`.

    Attributes:
        exported_layers: the decoder layer whose attention the export returns, as the mean of the heads for links.

    Raises:
        ModuleNotFoundError: CTranslate2 is not installed.
        ValueError: the folder is damaged, or the model has changed since the export.
    """

    training = False
    device = torch.device("cpu")  # device of input and output tensors

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
            self.exported_layers, self.heads = [values["layer"]], values["heads"]
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
        """The model itself, because it has no head to leave out."""
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
        """Return the decoder inputs that predict `labels`, shifted as in Marian and BART."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    def __call__(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor, **_: Any
    ) -> SimpleNamespace:
        """Run a batch with teacher forcing.

        Returns:
            `cross_attentions`: (batch, heads, steps, source) for the exported layer, where each head is the mean of
            the heads for links; None for the other layers.
        """
        sources = self._token_names(input_ids, attention_mask)
        # The step after the last token generates one more token, which is ignored.
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
            attention = torch.tensor(result.attention[0])[:steps]
            weights[row, : len(attention), : attention.shape[1]] = attention
        layers: list[Tensor | None] = [None] * self.config.decoder_layers
        heads = self.config.decoder_attention_heads
        layers[self.exported_layers[0]] = weights[:, None].expand(-1, heads, -1, -1)
        return SimpleNamespace(cross_attentions=tuple(layers))

    def generate(self, input_ids: Tensor, attention_mask: Tensor, **options: Any) -> Tensor:
        """Generate as `generate()` of transformers does; rows start with the decoder's start token.

        Raises:
            ValueError: an option that CTranslate2 does not have.
        """
        sources, first = self._token_names(input_ids, attention_mask), options.pop("forced_bos_token_id", None)
        first = self.generation_config.forced_bos_token_id if first is None else first
        forced = {} if first is None else {"target_prefix": [[self._tokens[first]]] * len(sources)}
        results = self._translator.translate_batch(
            sources, return_end_token=True, max_batch_size=0, **forced, **self._translated_options(options)
        )
        start, padding = self.generation_config.decoder_start_token_id, self.generation_config.pad_token_id
        rows = [[start, *map(self._ids.__getitem__, names)] for result in results for names in result.hypotheses]
        return padded(rows, padding)[0]

    def scores(self, inputs: Mapping[str, Tensor], output: Tensor) -> Iterator[tuple[list[int], list[float]]]:
        """Yield the generated tokens of each text, up to the end of sentence, and their log-probabilities.

        Args:
            inputs: `input_ids` and `attention_mask`.
            output: output of `generate` for them.
        """
        ends = end_tokens(self.generation_config)
        rows = [row[: length_to_end(row, ends)] for row in output[:, 1:].tolist()]
        # CTranslate2 also scores an end after each text; that score is dropped if the text has no end token.
        texts = [self._names([token for token in row if token not in ends]) for row in rows]
        scores = self._translator.score_batch(self._token_names(**inputs), texts, max_batch_size=0)
        for row, result in zip(rows, scores, strict=True):
            yield row, result.log_probs[: len(row)]

    def _translated_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `generate()` as options of CTranslate2."""
        saved = self.generation_config
        options = {"no_repeat_ngram_size": saved.no_repeat_ngram_size or 0} | dict(options)
        options.setdefault("repetition_penalty", saved.repetition_penalty or 1.0)
        shortest = options.pop("min_length", None) or (options.pop("min_new_tokens", None) or 0) + 1
        options.pop("min_new_tokens", None)
        # CTranslate2 always stops once there are as many finished hypotheses as beams.
        options.pop("early_stopping", None)
        translated: dict[str, Any] = {"min_decoding_length": max(0, shortest - 1)}
        for name, value in options.items():
            if name in _OPTIONS:
                translated |= {} if value is None else {_OPTIONS[name]: value}
            elif name not in _FIXED or value != _FIXED[name]:
                raise ValueError(
                    f"`{name}` is not supported with CTranslate2, got {value!r}. Leave it out, or translate with "
                    f"{self.of_model}."
                )
        return translated

    def _token_names(self, input_ids: Tensor, attention_mask: Tensor) -> list[list[str]]:
        rows = zip(input_ids.tolist(), attention_mask.tolist(), strict=True)
        return [[self._tokens[token] for token, real in zip(*row, strict=True) if real] for row in rows]

    def _names(self, ids: list[int]) -> list[str]:
        return [self._tokens[token] for token in ids]


def load_translator(name: str | Path, running: Running, device: str) -> tuple[TranslatorModel, Any]:
    """Load an export and the tokenizer of its model.

    Args:
        name: folder of the export, inside the folder of the model.
        running: device and limits; an export has its own precision.
        device: device, such as "cpu" or "cuda:0".

    Raises:
        ValueError: a file is damaged, `--dtype` is given, or the model has changed since the export.
    """
    if running.dtype is not None:
        raise ValueError(f"its precision was set in the export. Leave out --dtype {running.dtype}.")
    folder = Path(name)
    model, trusted = folder.parent, running.trust_remote_code
    config = load_config(model, trust_remote_code=trusted)
    tokenizer = load_tokenizer(model, config, trust_remote_code=trusted)
    generation = GenerationConfig.from_pretrained(model)
    return TranslatorModel(folder, config, generation, device=device, threads=running.threads), tokenizer


def is_exported(name: object) -> bool:
    """Return True for the name of a folder that `attncal export --format ctranslate2` wrote."""
    return isinstance(name, str | Path) and Path(name).name == CTRANSLATE2 and (Path(name) / EXPORTED).is_file()
