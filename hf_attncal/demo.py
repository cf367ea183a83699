"""`attncal demo`: a small gated model on synthetic English-German, from raw text to a folder for the Hub.

Everything is made on the spot: the sentence pairs with their exact word alignments, the vocabulary and the model.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from datasets import Dataset, disable_progress_bars
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor
from transformers import DataCollatorForSeq2Seq, PrinterCallback, TrainerCallback, set_seed
from transformers.utils import logging as transformers_logging

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel, AttnCalTrainer, AttnCalTrainingArguments
from hf_attncal.alignment import AlignmentScore, GoldAlignment, alignment_error_rate, argmax_links
from hf_attncal.analysis import attention_is_reliable, head_average
from hf_attncal.analysis.plots import heat_map
from hf_attncal.analysis.reading import read_pairs
from hf_attncal.analysis.words import word_attention
from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.synthetic.english_german import AlignedPair, generate_split
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.hub import Result, inspect_folder, translate_in_fresh_process, write_model_card
from hf_attncal.inference.translation import translate
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import BleuScore, bleu

TRAIN_PAIRS, DEV_PAIRS, TEST_PAIRS = 20_000, 300, 300
VOCABULARY = 800
MODEL = {
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "max_position_embeddings": 128,
    "activation_function": "relu",
    "scale_embedding": True,
    "init_std": 0.06,
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "calibration": "gated",
}
MAX_TOKENS = 1024  # of a batch
LEARNING_RATE = 3e-3
BATCH_SIZE = 100  # sentences, outside training
LONGEST_MAP = 11  # words of the longer side of the sentence in the heat map
SHOWN = 3  # sentences that the process without the package translates
WORDS = ("all", "without_punctuation")  # what is scored


class PairDetails(NamedTuple):
    """Head averages of the cross-attention for one sentence pair: (layers, target words, source words).

    `mask` averages over the subwords of a source word; the others sum, as mass does.
    """

    attention: Tensor
    mask: Tensor
    contribution: Tensor


def run_demo(output: str | Path, steps: int, seed: int) -> dict:
    """Train, measure, draw, save, and translate with what was saved; returns what `results.json` holds.

    Args:
        output: folder for `heat_map.png`, `results.json` and the model in `model/`.
        steps: optimiser steps.
        seed: of the model and of the order of training. The data are always the same.
    """
    started = time.monotonic()
    _quiet_libraries()
    console = Console(highlight=False)
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)

    console.rule("[bold]Data")
    train, dev, test = generate_split(TRAIN_PAIRS, DEV_PAIRS, TEST_PAIRS)
    tokenizer = train_bpe_tokenizer((line for side in _texts(train) for line in side), VOCABULARY)
    sources, targets = _texts(test)
    console.print(
        f"{len(train):,} synthetic English-German pairs to train on, {len(dev)} to choose a layer, "
        f"{len(test)} to test; {len(tokenizer)} subwords. One pair:\n  {sources[0]}\n  {targets[0]}"
    )

    console.rule("[bold]Training")
    set_seed(seed)
    model = build_model(tokenizer)
    before = translation_score(model, tokenizer, test)
    console.print(
        f"{model.num_parameters():,} parameters, gated calibration. BLEU before training: {before.score:.1f}"
    )
    train_model(model, tokenizer, train, steps, seed, console)
    after = translation_score(model, tokenizer, test)
    console.print(f"BLEU after training: [bold]{after.score:.1f}[/]  ({after.signature})")

    console.rule("[bold]Attention or contribution: which finds the word that was translated?")
    details, reliability = inspect_pairs(model, tokenizer, test)
    scores = compare_alignments(dev, inspect_pairs(model, tokenizer, dev)[0], test, details)
    print_alignments(scores, reliability, console)
    layer = scores["contribution"]["layer"]
    drawn = draw_heat_map(output / "heat_map.png", tokenizer, test, details, layer)
    console.print(f"Heat map: {output / 'heat_map.png'}\n  {drawn}", soft_wrap=True)

    console.rule("[bold]A folder for the Hub")
    folder = output / "model"
    save(folder, model, tokenizer, sources[0], after, scores)
    console.print(str(inspect_folder(folder)), soft_wrap=True)
    console.print("In a new process, where `import hf_attncal` fails:")
    translations = dict(zip(sources[:SHOWN], translate_in_fresh_process(folder, sources[:SHOWN]), strict=True))
    for sentence, translation in translations.items():
        console.print(f"  {sentence}\n    [bold]{translation}[/]")

    results = {
        **records.record({"steps": steps, "seed": seed, "model": MODEL}),
        "bleu": {"before": before.score, "after": after.score, "signature": after.signature},
        "alignment": scores,
        "reliability": reliability,
        "translations": translations,
        "seconds": round(time.monotonic() - started, 1),
    }
    records.write(results, output / "results.json")
    console.rule()
    console.print(f"{results['seconds']:.0f} seconds. All of it is in {output}/.")
    return results


def build_model(tokenizer) -> AttnCalMarianMTModel:
    """An untrained gated model for the tokenizer's vocabulary."""
    tokens = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    tokens |= {"bos_token_id": None, "forced_eos_token_id": None, "decoder_start_token_id": tokenizer.pad_token_id}
    return AttnCalMarianMTModel(AttnCalMarianConfig(vocab_size=len(tokenizer), **tokens, **MODEL))


class RichProgress(TrainerCallback):
    """A progress bar where the output is a terminal, else a line for each log."""

    def __init__(self, console: Console):
        self.console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)

    def on_train_begin(self, args, state, control, **kwargs):
        self.task = self.progress.add_task("training", total=state.max_steps)
        self.progress.start()

    def on_step_end(self, args, state, control, **kwargs):
        self.progress.update(self.task, completed=state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "nmt_loss" not in logs:
            return
        numbers = f"loss {logs['nmt_loss']:.2f}  mean mask {logs['mask_mean']:.2f}  mean gate {logs['gate_mean']:.2f}"
        self.progress.update(self.task, description=numbers)
        if not self.console.is_terminal:
            self.console.print(f"  step {state.global_step:5} of {state.max_steps}  {numbers}")

    def on_train_end(self, args, state, control, **kwargs):
        self.progress.stop()


def train_model(model, tokenizer, pairs: Sequence[AlignedPair], steps: int, seed: int, console: Console) -> None:
    """Train both objectives jointly with `AttnCalTrainer`; no checkpoint is written."""
    text = Dataset.from_dict(dict(zip(("source", "target"), _texts(pairs), strict=True)))
    dataset, _ = tokenize_pairs(text, tokenizer, model.config.max_position_embeddings)
    arguments = AttnCalTrainingArguments(
        max_steps=steps,
        tokens_per_batch=MAX_TOKENS,
        learning_rate=LEARNING_RATE,
        warmup_steps=steps // 10,
        lr_scheduler_type="cosine",
        adam_beta2=0.98,
        seed=seed,
        logging_steps=max(1, steps // 10),
        save_strategy="no",
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
    )
    trainer = AttnCalTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
        processing_class=tokenizer,
        callbacks=[RichProgress(console)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def translation_score(model, tokenizer, pairs: Sequence[AlignedPair]) -> BleuScore:
    """BLEU of beam search with 4 beams; the text is tokenised already."""
    sources, targets = _texts(pairs)
    hypotheses = translate(model, tokenizer, sources, batch_size=BATCH_SIZE, max_new_tokens=48)
    return bleu(hypotheses, targets, tokenize="none")


def inspect_pairs(model, tokenizer, pairs: Sequence[AlignedPair]) -> tuple[list[PairDetails], list[float]]:
    """Attention, mask and contribution between the words of every pair, from a pass over the correct translations.

    Returns:
        The details of every pair, and the reliability level (eq. 8) of every layer over all target steps.
    """
    details: dict[int, PairDetails] = {}
    reliable: list[Tensor] = []
    for read, reading in read_pairs(
        model, tokenizer, *_texts(pairs), batch_size=BATCH_SIZE, attentions=False, details=True
    ):
        kinds = reading.uncalibrated, reading.masks, reading.contributions
        hits = [attention_is_reliable(a, phi) for a, _, phi in zip(*kinds, strict=True)]
        reliable.append(torch.stack(hits)[:, reading.target_mask])
        # (batch, layers, target, source) each
        averages = [torch.stack([head_average(layer) for layer in layers], dim=1).cpu() for layers in kinds]
        for row, (index, source, target) in enumerate(read):
            steps = [reading.unpadded(average, row) for average in averages]
            a, m, phi, subwords = (word_attention(w, source, target) for w in (*steps, torch.ones_like(steps[0])))
            details[index] = PairDetails(a, m / subwords, phi)
    return [details[n] for n in range(len(pairs))], torch.cat(reliable, dim=1).double().mean(dim=1).tolist()


def compare_alignments(
    dev: Sequence[AlignedPair],
    dev_details: Sequence[PairDetails],
    test: Sequence[AlignedPair],
    details: Sequence[PairDetails],
) -> dict[str, dict]:
    """AER on test of `attention` and of `contribution`, each in the layer (from 1) that is best for it on dev."""
    scores = {}
    for name in ("attention", "contribution"):
        rates = [layer_score(dev, dev_details, name, layer).aer for layer in range(len(details[0].attention))]
        layer = rates.index(min(rates))
        found = {words: vars(layer_score(test, details, name, layer, words)) for words in WORDS}
        scores[name] = {"layer": layer + 1, **found}
    return scores


def layer_score(
    pairs: Sequence[AlignedPair], details: Sequence[PairDetails], name: str, layer: int, words: str = "all"
) -> AlignmentScore:
    """AER of linking every target word to the source word with the largest `name` in one layer (from 0).

    Without punctuation (see `WORDS`) the links of target words that are no words are left out on both sides.
    """
    gold, proposed = [], []
    for pair, detail in zip(pairs, details, strict=True):
        counted = {j for j, word in enumerate(pair.target) if words == "all" or word.isalnum()}
        links = frozenset(link for link in pair.links if link[1] in counted)
        gold.append(GoldAlignment(sure=links, possible=links))
        proposed.append({link for link in argmax_links(getattr(detail, name)[layer]) if link[1] in counted})
    return alignment_error_rate(gold, proposed, unit="word" if words == "all" else "word without punctuation")


def print_alignments(scores: dict[str, dict], reliability: Sequence[float], console: Console) -> None:
    """What `compare_alignments` found, and how often attention and contribution agree."""
    table = Table("alignment error rate", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for heading in ("all words", "without punctuation", "layer"):
        table.add_column(heading, justify="right")
    for name, symbols in (("attention", "attention a"), ("contribution", "contribution phi = |a_p - a|")):
        rates = (f"[bold]{100 * scores[name][words]['aer']:.1f}" for words in WORDS)
        table.add_row(symbols, *rates, str(scores[name]["layer"]))
    console.print(table)
    layer = scores["contribution"]["layer"]
    console.print(
        "Lower is better. Every target word is linked to its strongest source word, in the layer that is best on\n"
        "other data. The gold alignment links every full stop, but a decoder may know where a sentence ends without\n"
        "looking: then no source word contributes.\n"
        f"In layer {layer} the token with most attention is the one that contributes most in "
        f"{reliability[layer - 1]:.0%} of the steps.\n"
        f"{scores['attention']['all']['signature']}",
        soft_wrap=True,
    )


def draw_heat_map(
    path: Path, tokenizer, pairs: Sequence[AlignedPair], details: Sequence[PairDetails], layer: int
) -> str:
    """Attention, mask and contribution of one test pair and one layer (from 1); returns the pair that was drawn.

    Of the pairs that fit the page the one with the most different words, and of those the one with the fewest
    subwords: where a word is one subword its cells are the model's own numbers.
    """

    def preference(index: int) -> tuple[int, int]:
        sides = pairs[index].source, pairs[index].target
        return sum(len(set(side)) for side in sides), -sum(len(tokenizer.tokenize(" ".join(side))) for side in sides)

    fitting = [n for n, pair in enumerate(pairs) if max(len(pair.source), len(pair.target)) <= LONGEST_MAP]
    chosen = max(fitting, key=preference)
    pair = pairs[chosen]
    names = ("attention a", "mask m (light = it matters)", "contribution φ = |aₚ − a|")
    panels = {name: layers[layer - 1] for name, layers in zip(names, details[chosen], strict=True)}
    title = f"Decoder layer {layer}, mean of the heads"
    heat_map(panels, pair.source, pair.target, links=pair.links, title=title).savefig(path, dpi=160)
    return f"{' '.join(pair.source)}  |  {' '.join(pair.target)}"


def save(folder: Path, model, tokenizer, example: str, bleu_score: BleuScore, scores: dict) -> None:
    """Model, code, tokenizer and model card."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rates = [
        Result(f"AER of {name}, layer {score['layer']}", 100 * score[words]["aer"], score[words]["signature"])
        for name, score in scores.items()
        for words in WORDS
    ]
    write_model_card(
        folder,
        model_name="attncal-demo",
        summary="A small English-German model with gated attention calibration, trained by `attncal demo`.",
        training_data=f"{TRAIN_PAIRS:,} pairs of the synthetic English-German language of `hf_attncal`",
        example=example,
        languages=("en", "de"),
        results=[Result("BLEU", bleu_score.score, bleu_score.signature), *rates],
    )


def _texts(pairs: Sequence[AlignedPair]) -> tuple[list[str], list[str]]:
    return [" ".join(pair.source) for pair in pairs], [" ".join(pair.target) for pair in pairs]


def _quiet_libraries() -> None:
    """One progress bar is enough, and what the libraries remark about a toy run helps nobody."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    disable_progress_bars()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
