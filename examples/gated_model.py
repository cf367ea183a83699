"""Train a small gated model on synthetic English-German pairs with exact links, and inspect its attention.

    python examples/gated_model.py --output demo

It prints BLEU before and after, and the alignment error of attention and of contributions. It draws a heat map, and
writes a folder for the Hub, with which a process without this package translates: three to five minutes on two cores.
"""

import argparse
import copy
import os
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from datasets import Dataset, disable_progress_bars
from english_german import AlignedPair, generate_split
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainingArguments, set_seed
from transformers.utils import logging as transformers_logging

from hf_attncal.alignment.links import argmax_links
from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.drawing.plots import heat_map
from hf_attncal.hub.hub_folder import inspect_folder
from hf_attncal.hub.isolated import translate_in_fresh_process
from hf_attncal.hub.model_cards import Result, write_model_card
from hf_attncal.inference.word_attention import WordDetails, word_details
from hf_attncal.io.files import load_yaml, write_json, writing
from hf_attncal.io.gate import claim_folder, job, run_record
from hf_attncal.io.messages import command_prefix
from hf_attncal.layouts import RUN
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.models.functional import divergence
from hf_attncal.training.calibrated import AttnCalTrainer
from hf_attncal.training.folder import Run
from hf_attncal.training.job import build_tokenizer, run_trainer
from hf_attncal.training.seq2seq import build_seq2seq_model, copy_search_settings, evaluate
from hf_attncal.training.translation import TranslationConfig

WRITER = "a demonstration"  # mark of the model's folder, which the next run may write again
PAIRS = {"train": 20_000, "valid": 300, "test": 300}
# Settings in the format of configs/.
DEMO_SETTINGS = """
tokenizer: {vocab_size: 800}
model: {d_model: 128, encoder_layers: 2, decoder_layers: 2, encoder_attention_heads: 4, decoder_attention_heads: 4,
  encoder_ffn_dim: 256, decoder_ffn_dim: 256, max_position_embeddings: 128, activation_function: relu,
  scale_embedding: true, init_std: 0.06, dropout: 0.1, label_smoothing: 0.1, calibration: gated}
training: {tokens_per_batch: 1024, learning_rate: 0.003, warmup_steps: 0.1, lr_scheduler_type: cosine,
  adam_beta2: 0.98, bf16: false, logging_steps: 0.1, save_strategy: no, report_to: none}
evaluation: {batch_size: 100, max_new_tokens: 48, bleu_tokenize: none}
"""
MAX_WORDS_OF_MAP = 10  # words of the longer side of the pair in the heat map
TRANSLATED = 3  # number of sentences that a process without the package translates
SCORED_WORDS = ("all", "without_punctuation")  # words on which alignments are scored
Scored = tuple[Sequence[AlignedPair], Sequence[WordDetails]]


def run_demo(output: str | Path, steps: int, seed: int = 1) -> dict:
    """Train, score, draw and save a model, translate with the saved folder, and return the results.

    Args:
        output: folder for `heat_map.png`, `results.json` and the model in `model/`.
        steps: number of optimiser steps.
        seed: seed of the model and of the order of training; the data do not change. Default: 1.
    """
    started = time.monotonic()
    _quiet_libraries()
    console = Console(highlight=False)
    folder = Path(output) / "model"
    claim_folder(folder, WRITER)
    write_json(run_record(WRITER), folder / RUN)
    values = load_yaml(DEMO_SETTINGS)
    values["training"] |= {"output_dir": str(folder), "max_steps": steps, "seed": seed}
    config = TranslationConfig.make(values)
    run = Run(config.arguments())

    console.rule("[bold]Data")
    pairs = generate_split(**PAIRS)
    text = {name: _texts(getattr(pairs, name)) for name in PAIRS}
    tokenizer = build_tokenizer(config, run, text["train"])
    console.print(
        "{train:,} synthetic English-German pairs to train on, {valid} to choose a layer, {test} to test; "
        "{} subwords. One pair:\n  {source}\n  {target}".format(len(tokenizer), **PAIRS, **text["test"][0])
    )

    console.rule("[bold]Training")
    set_seed(seed)
    model = build_seq2seq_model(config, tokenizer)
    copy_search_settings(model, tokenizer, config.evaluation)
    untrained = copy.deepcopy(model)
    console.print(f"{model.num_parameters():,} parameters, gated calibration")
    tokenized, report = tokenize_pairs(text["train"], tokenizer, config.data.max_length)
    assert isinstance(run.args, Seq2SeqTrainingArguments)
    trainer = AttnCalTrainer(
        model=model,
        args=run.args,
        train_dataset=tokenized,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
        processing_class=tokenizer,
    )
    model, results = run_trainer(trainer, config, {"train": report}, run)
    # The untrained model is scored after training, so that progress and time left are shown early.
    _, before = evaluate(untrained, tokenizer, text["test"], config)
    translated, after = evaluate(model, tokenizer, text["test"], config)
    console.print(
        f"BLEU before training {before['bleu']:.1f}, after [bold]{after['bleu']:.1f}[/]  ({after['signature']})"
    )

    console.rule("[bold]Attention or contribution: which finds the translated word?")
    dev, test = (
        (
            getattr(pairs, name),
            [details for details in word_details(model, tokenizer, *text[name][:].values()) if details is not None],
        )
        for name in ("valid", "test")
    )
    reliability = torch.cat([detail.reliable for detail in test[1]], dim=1).double().mean(dim=1).tolist()
    scores = compare_alignments(dev, test)
    print_alignments(scores, reliability, console)
    file, layer = folder.parent / "heat_map.png", scores["contribution"]["layer"]
    drawn = draw_heat_map(file, translated, test, layer)
    console.print(f"Heat map: {file}\n  {drawn}", soft_wrap=True)

    console.rule("[bold]A folder for the Hub")
    sentences = text["test"]["source"][:TRANSLATED]
    save(folder, model, sentences[0], after, scores)
    content = inspect_folder(folder)
    console.print(
        f"{folder}: {content.architecture}, {content.weight_bytes / 1e6:.1f} MB of weights, "
        f"{len(content.code_files)} files of code. Problems: {'; '.join(content.problems) or 'none'}.",
        soft_wrap=True,
    )
    console.print("In a new process, where `import hf_attncal` fails:")
    translations = dict(zip(sentences, translate_in_fresh_process(folder, sentences), strict=True))
    for sentence, translation in translations.items():
        console.print(f"  {sentence}\n    [bold]{translation}[/]")

    results |= {
        "config": {"steps": steps, "seed": seed, **results["config"]},
        "bleu": {"before": before["bleu"], "after": after["bleu"], "signature": after["signature"]},
        "alignment": scores,
        "reliability": reliability,
        "translations": translations,
        "seconds": round(time.monotonic() - started, 1),
    }
    write_json(results, folder.parent / "results.json")
    console.rule()
    console.print(f"{results['seconds']:.0f} seconds. All files are in {output}/.")
    console.print(f"In the browser: {command_prefix()} show {folder} 'the old house'", soft_wrap=True)
    return results


def compare_alignments(dev: Scored, test: Scored) -> dict[str, dict]:
    """Return the AER on test of `attention` and `contribution`, each in its best layer on dev (counted from 0)."""

    def aer(data: Scored, name: str, layer: int, words: str = "all") -> dict:
        pairs, details = data
        gold = [GoldAlignment(sure=pair.links, possible=pair.links) for pair in pairs]
        links = [argmax_links(getattr(detail, name)[layer]) for detail in details]
        return vars(alignment_error_rate(gold, links, sentences=[p[:2] for p in pairs], punctuation=words == "all"))

    scores = {}
    for name in ("attention", "contribution"):
        rates = [aer(dev, name, layer)["aer"] for layer in range(len(dev[1][0].attention))]
        layer = rates.index(min(rates))
        scores[name] = {"layer": layer, **{words: aer(test, name, layer, words) for words in SCORED_WORDS}}
    return scores


def print_alignments(scores: dict[str, dict], reliability: Sequence[float], console: Console) -> None:
    """Print the scores of `compare_alignments`, and the agreement of attention and contribution."""
    table = Table("alignment error rate", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for heading in ("all words", "without punctuation", "layer"):
        table.add_column(heading, justify="right")
    for name, symbols in (("attention", "attention a"), ("contribution", "contribution phi = |a_p - a|")):
        rates = (f"[bold]{100 * scores[name][words]['aer']:.1f}" for words in SCORED_WORDS)
        table.add_row(symbols, *rates, str(scores[name]["layer"]))
    console.print(table)
    layer = scores["contribution"]["layer"]
    console.print(
        "Lower is better. Each target word is linked to its strongest source word, in the layer (counted from 0)\n"
        "that is best on other data. The gold alignment links every full stop, but a decoder can predict the end of\n"
        "a sentence without its source: then no source word contributes.\n"
        f"In layer {layer} the token with the most attention contributes most at {reliability[layer]:.0%} of the "
        "steps.\n"
        f"{scores['attention']['all']['signature']}",
        soft_wrap=True,
    )


def draw_heat_map(path: Path, translations: Sequence[str], data: Scored, layer: int) -> str:
    """Draw attention, contribution and the change by calibration for one test pair in one layer; return the pair.

    The pair is the one that calibration changes most (sum of Jensen-Shannon divergences over target words), so it is
    the strongest case and not a typical one. It is chosen among pairs that fit the page and are translated as in the
    reference, or, if there are none, among all that fit.

    Args:
        path: path of the picture.
        translations: translations of the model.
        data: pairs and word details of the model.
        layer: decoder layer, counted from 0.
    """

    def changed(index: int) -> float:
        weights = details[index].attention, details[index].calibrated
        return float(divergence(*(layers[layer] for layers in weights)).sum())

    pairs, details = data
    fitting = [n for n, pair in enumerate(pairs) if max(len(pair.source), len(pair.target)) <= MAX_WORDS_OF_MAP]
    right = [n for n in fitting if translations[n] == " ".join(pairs[n].target)]
    chosen = max(right or fitting, key=changed)
    pair, detail = pairs[chosen], details[chosen]
    attention = detail.attention[layer]
    panels = {"attention a": attention, "contribution φ = |aₚ − a|": detail.contribution[layer]}
    change = "calibrated attention minus a", detail.calibrated[layer] - attention
    title = f"Decoder layer {layer} (counted from 0), mean of the heads; calibrated: weights in use, as shares"
    heat_map(panels, pair.source, pair.target, links=pair.links, title=title, change=change).savefig(path, dpi=160)
    return f"{' '.join(pair.source)}  |  {' '.join(pair.target)}"


def save(folder: Path, model, example: str, score: dict, alignment: dict) -> None:
    """Save model, code and model card next to the saved tokenizer."""
    model.save_pretrained(folder)
    results = [Result("BLEU", score["bleu"], score["signature"])]
    for (name, scores), words in product(alignment.items(), SCORED_WORDS):
        measure = f"AER of {name}, layer {scores['layer']} (counted from 0)"
        results.append(Result(measure, 100 * scores[words]["aer"], scores[words]["signature"]))
    write_model_card(
        folder,
        model_name="attncal-demo",
        summary="A small English-German model with gated attention calibration, trained by `examples/gated_model.py`.",
        training_data=f"{PAIRS['train']:,} pairs of the synthetic English-German language of `hf_attncal`",
        example=example,
        languages=("en", "de"),
        license="apache-2.0",
        results=results,
    )


def _texts(pairs: Sequence[AlignedPair]) -> Dataset:
    return Dataset.from_dict({side: [" ".join(getattr(p, side)) for p in pairs] for side in ("source", "target")})


def _quiet_libraries() -> None:
    """Turn off progress bars and warnings of the libraries."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    disable_progress_bars()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="demo", help="folder for the heat map, the results and the model")
    parser.add_argument("--steps", type=int, default=1000, help="number of optimiser steps")
    options = parser.parse_args(arguments)
    with job(), writing(options.output):
        run_demo(options.output, options.steps)


if __name__ == "__main__":
    main()
