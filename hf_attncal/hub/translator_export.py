"""Export a translation model for CTranslate2, which translates on CPUs several times as fast as PyTorch.

CTranslate2 can only compute stock Marian and BART models, so calibrated, leaky and Gumbel attention must be off. A
guided head is kept, and its links are returned with the translation.
"""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hf_attncal.families import FAMILIES
from hf_attncal.inference.seals import write_sealed
from hf_attncal.io.extras import need
from hf_attncal.io.files import fill_folder
from hf_attncal.io.gate import saving_into
from hf_attncal.layouts import CTRANSLATE2, EXPORTED, SETTINGS_FILE

from .hub_folder import inspect_folder

QUANTIZATIONS = {"ctranslate2": "float32", "ctranslate2-int8": "int8"}
# Fields of the configuration that CTranslate2 cannot compute.
_SWITCHES = ("calibration", "leaky", "gumbel", "output_gate", "copy")
# Largest allowed difference between log-probabilities of tokens in float32.
_TOLERANCE = 1e-3
_NEVER = -1e9  # bias of a token that must not be generated


class ExportError(ValueError):
    """Error that prevents an export; its message has the remedy."""


class Exported(NamedTuple):
    """Exported model: its folder, and the largest difference of its scores from PyTorch's."""

    path: Path
    difference: float

    def __str__(self) -> str:
        return f"{self.path}: differs from PyTorch by at most {self.difference:.1e}"


class _Links(NamedTuple):
    """Decoder layer and heads whose mean attention gives links."""

    layer: int
    heads: list[int]


def export_translator(
    folder: str | PathLike[str], format: Literal["ctranslate2", "ctranslate2-int8"] = "ctranslate2"
) -> Exported:
    """Export a translation model for CTranslate2, into the folder `ctranslate2` inside its own folder.

    Nothing is written unless the exported model scores random text as PyTorch does.

    Args:
        folder: folder of a saved Marian or BART of this package, with its tokenizer, and with calibrated, leaky and
            Gumbel attention off.
        format: "ctranslate2" for float32, "ctranslate2-int8" for matrices in 8 bits, a quarter of the size.

    Returns:
        The folder, and the largest difference of a token's log-probability from PyTorch.

    Raises:
        ExportError: CTranslate2 is not installed, or cannot run the model.
    """
    folder = Path(folder)
    try:
        need("ctranslate2")
        inspected = inspect_folder(folder)
        family = FAMILIES[inspected.model_type]
        if inspected.problems:
            raise ExportError(f"{folder} cannot be exported: {'; '.join(inspected.problems)}.")
        if family.stock is None or not hasattr(family.config_class(), "guided"):
            raise ExportError(f"CTranslate2 runs Marian and BART, and {folder} holds {inspected.architecture}.")
        on = [name for name in _SWITCHES if inspected.config.get(name)]
        if on:
            raise ExportError(
                f"CTranslate2 has no `{on[0]}` attention, with which {folder} was trained. Translate with PyTorch, or "
                "train with --model baseline or guided."
            )
        from hf_attncal.inference.loading import load_seq2seq
        from hf_attncal.inference.translator_model import TranslatorModel

        model, tokenizer = load_seq2seq(folder, dtype="float32")
    except ExportError:
        raise
    except (ModuleNotFoundError, OSError, ValueError) as error:
        raise ExportError(f"{folder} cannot be exported: {error}") from error
    links, scored = _links(folder, model), _scored(model.eval(), tokenizer)  # before the converter changes the weights
    spec = _spec(model, _vocabulary(tokenizer, model.config.vocab_size), tokenizer, links)
    spec.validate()
    exact = QUANTIZATIONS[format] == "float32"
    spec.optimize(quantization=None if exact else QUANTIZATIONS[format])
    place, differences = folder / CTRANSLATE2, []

    def save(staged: Path) -> None:
        spec.save(str(staged))
        write_sealed({"layer": links.layer, "heads": links.heads}, staged / EXPORTED, folder)
        translator = TranslatorModel(staged, model.config, model.generation_config, of_model=folder)
        differences.append(_difference(translator, scored))
        if exact and not differences[0] <= _TOLERANCE:
            problem = f"CTranslate2 differs from PyTorch by {differences[0]:.1e}"
            raise ExportError(f"{folder} cannot be exported: {problem}. Use it with PyTorch.")

    with saving_into(folder):
        fill_folder(place, save, last=(EXPORTED,))
    return Exported(place, differences[0])


def _links(folder: Path, model) -> _Links:
    """Return the heads for links: from `alignment.json`, else the guided head, else all heads of a middle layer."""
    config = model.config
    layers, heads = config.cross_attention_sizes
    if (path := folder / SETTINGS_FILE).is_file():
        settings = json.loads(path.read_text(encoding="utf-8"))
        if settings.get("weights", "attention") == "attention":
            return _Links(settings["layer"] % layers, list(settings.get("heads") or range(heads)))
    if config.guided_attention is not None:
        return _Links(config.guided_attention[0], [config.guided_attention[1]])
    return _Links(max(0, layers // 2 - 1), list(range(heads)))


def _vocabulary(tokenizer, size: int) -> list[str]:
    names = tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer)))))
    names += [f"<unused {number}>" for number in range(len(names), size)]
    if len(set(names)) < size or getattr(tokenizer, "separate_vocabs", False):
        raise ExportError("the tokenizer has several tokens with the same name, which CTranslate2 cannot distinguish.")
    return names


def _spec(model, vocabulary: list[str], tokenizer, links: _Links) -> Any:
    """Convert a model with CTranslate2's converter of BART, with the heads for links first."""
    import numpy as np
    import torch
    from ctranslate2.converters.transformers import BartLoader

    config, is_marian = model.config, not hasattr(model.get_encoder(), "layernorm_embedding")
    with torch.no_grad():
        _move_to_front(model.get_decoder().layers[links.layer].encoder_attn, links.heads)
        model.final_logits_bias[:, _suppressed_tokens(model)] = _NEVER

    class Loader(BartLoader):
        """Loader for our tokenizers: padding may have any number, and no token starts a sentence."""

        def get_vocabulary(self, model, tokenizer):
            return vocabulary

        def set_config(self, config, model, tokenizer):
            start = model.config.decoder_start_token_id
            config.eos_token = config.bos_token = vocabulary[model.config.eos_token_id]
            config.unk_token = tokenizer.unk_token or config.eos_token
            config.decoder_start_token = vocabulary[start]

    config.normalize_before, config.normalize_embedding = False, not is_marian
    spec = Loader()(model, tokenizer)
    spec.decoder.alignment_layer = np.int16(links.layer)
    spec.decoder.alignment_heads = np.int16(len(links.heads))
    return spec


def _suppressed_tokens(model) -> list[int]:
    """Return the tokens that `generate()` of the model never generates."""
    listed = model.generation_config.bad_words_ids or []
    nulls = [model.config.null_token_id] if model.config.uam else []
    return [*nulls, *(row[0] for row in listed if len(row) == 1), *(model.generation_config.suppress_tokens or ())]


def _move_to_front(attention, heads: list[int]) -> None:
    """Reorder the heads, because CTranslate2 returns the attention of the first ones; the output stays the same."""
    size, count = attention.head_dim, attention.num_heads
    order = heads + [head for head in range(count) if head not in heads]
    places = [head * size + place for head in order for place in range(size)]
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.copy_(projection.weight[places])
        if projection.bias is not None:
            projection.bias.copy_(projection.bias[places])
    attention.out_proj.weight.copy_(attention.out_proj.weight[:, places])


def _scored(model, tokenizer) -> list[tuple[dict[str, Any], Any, Any]]:
    """Return random sources, random texts, and a model's log-probabilities of the texts' tokens."""
    import torch

    generator = torch.Generator().manual_seed(1)
    special = {*tokenizer.all_special_ids, *_suppressed_tokens(model)}
    ordinary = torch.tensor([token for token in range(len(tokenizer)) if token not in special])
    rows = []
    for source, target in ((5, 4), (7, 3), (3, 6)):
        ids, labels = (
            ordinary[torch.randint(len(ordinary), (1, size), generator=generator)] for size in (source, target)
        )
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        text = torch.cat([torch.full((1, 1), model.config.decoder_start_token_id), labels], dim=1)
        with torch.no_grad():
            logits = model(**inputs, decoder_input_ids=text[:, :-1]).logits
        rows.append((inputs, text, logits.log_softmax(dim=-1).gather(2, labels[..., None])[0, :, 0]))
    return rows


def _difference(translator, scored: list[tuple[dict[str, Any], Any, Any]]) -> float:
    """Return the largest difference between the token scores of a translator and of the model."""
    worst = 0.0
    for inputs, text, expected in scored:
        ((_, scores),) = translator.scores(inputs, text)
        worst = max(worst, float((expected - expected.new_tensor(scores)).abs().max()))
    return worst
