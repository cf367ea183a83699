"""`attncal import`: convert a Marian model, such as Firefox uses, to transformers."""

from dataclasses import dataclass
from pathlib import Path as FilePath

from hf_attncal.io.messages import silenced_libraries

from .kinds import Folder, NewFolder


@dataclass(frozen=True)
class Imported:
    """An imported model: its folder, and a description of its `architecture`."""

    folder: FilePath
    architecture: str

    def __str__(self) -> str:
        return f"{self.folder}: {self.architecture}"


def import_marian(folder: Folder, /, *, output: NewFolder) -> Imported:
    """Import a Marian model, such as Firefox uses.

    Read model.*.bin (in float32 or 8 bits, with or without alphas) and vocab.*.spm, and write a transformers model
    with its tokenizer and code: AutoModelForSeq2SeqLM loads it without this package. Its guided head makes the links
    of `attncal translate --alignments`. Supported are Transformers with an SSRU decoder and one vocabulary, of any
    depth and width (tiny, base); for others, the error names the setting that differs.

    Examples:
        attncal import models/enpt --output enpt
        attncal translate enpt source.txt --alignments links.align --output translations.txt

        >>> hf_attncal.import_marian("models/enpt", output="enpt").architecture

    Args:
        folder: folder with the .bin and the .spm. A shortlist beside them (lex.*.bin) goes into the model: with
            `shortlist=true`, `attncal translate` writes only tokens on it, which is faster
        output: folder of the new model

    Returns:
        The `folder` of the model, and its `architecture`.

    Raises:
        CommandError: a file is missing or damaged, or a model of another architecture.
    """
    with silenced_libraries():
        from hf_attncal.alignment.seq2seq import Seq2SeqAttention
        from hf_attncal.hub import write_model_card
        from hf_attncal.hub.marian_import import facts_of_name, import_folder
        from hf_attncal.io.files import fill_folder

        model, tokenizer, layer = import_folder(FilePath(folder))
        config = model.config
        words = (
            f"{config.encoder_layers} + {config.decoder_layers} layers x {config.d_model}, "
            f"{config.encoder_attention_heads} heads, {config.vocab_size - 1:,} pieces"
        )

        def save(path: FilePath) -> None:
            model.save_pretrained(path)
            tokenizer.save_pretrained(path)
            # The links were learned at the step that predicts a token, hence no shift.
            Seq2SeqAttention(layer, (0,), shift=False).save(path)
            write_model_card(
                path,
                model_name=FilePath(output).name,
                summary=f"A model of Marian with an SSRU decoder ({words}), imported from its binary file.",
                training_data="Not stated in the file.",
                example="1 2 3",
                template="imported",
                **facts_of_name(FilePath(folder)),
            )

        fill_folder(FilePath(output), save)
    return Imported(FilePath(output), f"{words}; links from head 0 of decoder layer {layer} (from 0)")
