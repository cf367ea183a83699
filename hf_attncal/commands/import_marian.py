"""`attncal import`: a model of Marian, as Firefox has them, as a model of transformers."""

from dataclasses import dataclass
from pathlib import Path as FilePath

from hf_attncal.io.messages import without_chatter

from .kinds import Folder, NewFolder


@dataclass(frozen=True)
class Imported:
    """What was imported: the folder of the model, and its `architecture` in words."""

    folder: FilePath
    architecture: str

    def __str__(self) -> str:
        return f"{self.folder}: {self.architecture}"


def import_marian(folder: Folder, /, *, output: NewFolder) -> Imported:
    """Import a model of Marian, as Firefox translates with.

    Read model.*.bin (in float32 or 8 bits, alphas or not) and vocab.*.spm, and write a model of transformers with its
    tokenizer and code: AutoModelForSeq2SeqLM loads it without this package. Its head that was trained on word links
    makes the links of `attncal translate --alignments`. What is read are Transformers with an SSRU decoder and one
    vocabulary, of any depth and width (tiny, base); others are refused by the setting that differs.

    Examples:
        attncal import models/enpt --output enpt
        attncal translate enpt --source source.txt --alignments links.align --output translations.txt

    Args:
        folder: folder with the .bin and the .spm; a shortlist (lex.*) is not needed
        output: folder of the model

    Returns:
        The `folder` of the model, and its `architecture`.

    Raises:
        CommandError: a file is missing, damaged, or a model of another architecture.
    """
    with without_chatter():
        from hf_attncal.alignment.seq2seq import Seq2SeqAttention
        from hf_attncal.hub import write_model_card
        from hf_attncal.hub.marian_import import import_folder
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
            # The step that predicts a token learned its links.
            Seq2SeqAttention(layer, (0,), shift=False).save(path)
            write_model_card(
                path,
                model_name=FilePath(output).name,
                summary=f"A model of Marian with an SSRU decoder ({words}), imported from its binary file.",
                training_data="Not stated in the file.",
                example="1 2 3",
            )

        fill_folder(FilePath(output), save)
    return Imported(FilePath(output), f"{words}; links from head 1 of decoder layer {layer + 1}")
