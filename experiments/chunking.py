"""What frozen encoders know of syntax: chunks of CoNLL-2000 by one linear layer over the states of an encoder.

    python experiments/chunking.py --data DIR/conll2000 --model soft=runs/soft1 --model soft=runs/soft2 \
        --model two=runs/two1 --output results/chunking

A word is the state of its first subword in the top layer. The layer is a multinomial logistic regression; its
penalty is chosen by F1 on the last tenth of the training text, and then it is trained on all of it. Two controls say
what of that the training of the encoder has brought: the same encoder with random weights, and the embeddings of the
first subwords without an encoder. The baseline gives each word the tag that its part of speech has most often.

A sentence of more tokens than the model has positions is halved, between words, until its parts fit; the results say
how many were.
"""

import argparse
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import sklearn
import torch
from chunk_score import CHUNK_F1, chunk_counts, chunk_score
from committed import RESULTS
from conll import TaggedSentence, most_frequent_tags, read_conll
from frozen import add_models, read_models
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from word_vectors import by_stream, embedding_tables

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.data.chunk_tags import OUTSIDE
from hf_attncal.data.words import WordTokens, tokenize_words
from hf_attncal.files import write_json
from hf_attncal.metrics import records

FILES = {"train": "train.txt.gz", "test": "test.txt.gz"}
PENALTIES = (0.001, 0.01, 0.1)  # `C` of scikit-learn, from strong to weak
TOLERANCE = 1e-3  # a tenth of it takes three times as long for 0.1 % of the tags
MOST_ITERATIONS = 1000
DEV_SHARE = 0.1
MAX_TOKENS = 4096  # of a batch

Tags = list[tuple[str, ...]]


# ---- vectors of words ----


def first_subwords(tokenizer, sentences: Iterable[Sequence[str]], limit: int | None) -> tuple[list[WordTokens], int]:
    """Tokens of sentences, those of more than `limit` tokens in parts, and how many sentences are in parts.

    Raises:
        ValueError: a word alone has more tokens than `limit`, or none.
    """
    parts: list[WordTokens] = []
    cut = 0
    sentences = list(sentences)
    for words, tokens in zip(sentences, tokenize_words(tokenizer, [" ".join(s) for s in sentences]), strict=True):
        of_sentence = _halved(tokenizer, words, tokens, limit)
        cut += len(of_sentence) > 1
        parts += of_sentence
    return parts, cut


def _halved(tokenizer, words: Sequence[str], tokens: WordTokens, limit: int | None) -> list[WordTokens]:
    for word, places in zip(words, tokens.tokens_of_words(), strict=True):
        if not places:
            raise ValueError(f"The tokenizer has no token for the word {word!r}, so that it has no vector.")
    if limit is None or len(tokens.ids) <= limit:
        return [tokens]
    if len(words) == 1:
        raise ValueError(f"The word {words[0]!r} has {len(tokens.ids)} tokens, and the model {limit} positions.")
    halves = words[: len(words) // 2], words[len(words) // 2 :]
    again = tokenize_words(tokenizer, [" ".join(half) for half in halves])
    return [part for half, new in zip(halves, again, strict=True) for part in _halved(tokenizer, half, new, limit)]


def first_places(tokens: WordTokens) -> list[int]:
    """The place of the first token of each word."""
    return [places[0] for places in tokens.tokens_of_words()]


@torch.inference_mode()
def encoder_states(model, pad: int, texts: Sequence[WordTokens]) -> dict[str, np.ndarray]:
    """Stream -> (words, d_model), float32: the states of first subwords in the top layer, in the order of the text."""
    encoder = model.get_encoder()
    rows: dict[str, list] = {}
    for batch in batches_by_length([len(tokens.ids) for tokens in texts], max_tokens=MAX_TOKENS):
        ids, mask = (tensor.to(model.device) for tensor in padded([texts[n].ids for n in batch], pad))
        outputs = encoder(input_ids=ids, attention_mask=mask, return_dict=True)
        states = by_stream(outputs.last_hidden_state, getattr(outputs, "syntactic_last_hidden_state", None))
        for stream, of_stream in states.items():
            of_texts = rows.setdefault(stream, [None] * len(texts))
            for n, of_text in zip(batch, of_stream, strict=True):
                of_texts[n] = of_text[first_places(texts[n])].float().cpu().numpy()
    return {stream: np.concatenate(of_texts) for stream, of_texts in rows.items()}


def untrained(model, seed: int):
    """A model of the same configuration with random weights."""
    torch.manual_seed(seed)
    return type(model)(model.config).to(model.device).eval()


# ---- the linear layer ----


def probe(train: np.ndarray, test: np.ndarray, tags: Tags) -> tuple[dict, list[str]]:
    """Train the layer; what was chosen for it, and the tag of every word of the test.

    Args:
        train: (words, d) of the training text. test: likewise.
        tags: of every sentence of the training text.
    """
    first = len(tags) - max(1, round(DEV_SHARE * len(tags)))
    dev = tags[first:]
    flat = np.array(list(chain.from_iterable(tags)))
    start = len(flat) - sum(map(len, dev))
    if len(train) != len(flat):
        raise ValueError(f"{len(flat)} tags do not fit {len(train)} words. Give one a word.")
    layer = LogisticRegression(tol=TOLERANCE, max_iter=MOST_ITERATIONS)
    scaled = make_pipeline(StandardScaler(), layer)  # linear, too
    dev_f1 = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for penalty in PENALTIES:
            layer.C = penalty
            scaled.fit(train[:start], flat[:start])
            dev_f1[penalty] = chunk_score(dev, by_sentence(scaled.predict(train[start:]), dev)).f1
        layer.C = max(dev_f1, key=dev_f1.__getitem__)
        scaled.fit(train, flat)
    return {"C": layer.C, "dev_f1": dev_f1}, scaled.predict(test).tolist()


def by_sentence(tags: Iterable[str], like: Sequence[Sequence[str]]) -> Tags:
    """The tags of a text, one for a word, sentence by sentence as those of `like`."""
    tags = [str(tag) for tag in tags]
    bounds = np.cumsum([0, *map(len, like)]).tolist()
    return [tuple(tags[start:stop]) for start, stop in pairwise(bounds)]


def baseline(train: Sequence[TaggedSentence], test: Sequence[TaggedSentence]) -> Tags:
    """The most frequent chunk tag of each part of speech; outside, where the training text has no such part."""
    columns = [list(chain.from_iterable(column)) for column in list(zip(*train, strict=True))[1:]]
    tagger = most_frequent_tags(*columns)
    return [tuple(tagger.get(part, OUTSIDE) for part in sentence.parts_of_speech) for sentence in test]


# ---- a model ----


def measure(model, tokenizer, text: dict[str, list[TaggedSentence]], args: argparse.Namespace) -> dict:
    """Everything that the results file of a model says besides its head.

    Raises:
        ValueError: see `first_subwords`.
    """
    began = time.perf_counter()
    gold = {split: [sentence.chunk_tags for sentence in sentences] for split, sentences in text.items()}
    limit = getattr(model.config, "max_position_embeddings", None)
    tokens, ids, facts = {}, {}, {}
    for split, sentences in text.items():
        words = [[w.lower() if args.lowercase else w for w in sentence.words] for sentence in sentences]
        tokens[split], cut = first_subwords(tokenizer, words, limit)
        ids[split] = np.concatenate([part.ids[first_places(part)] for part in tokens[split]])
        facts[split] = {
            "sentences": len(words),
            "sentences_in_parts": cut,
            "words": len(ids[split]),
            "words_with_unknown_tokens": sum(
                len(np.unique(part.word_ids[part.ids == tokenizer.unk_token_id])) for part in tokens[split]
            ),
            "tokens": sum(int((part.word_ids >= 0).sum()) for part in tokens[split]),
        }
    vectors = {}
    for name, encoder in (("encoder", model), ("untrained", untrained(model, args.seed))):
        splits = {split: encoder_states(encoder, tokenizer.pad_token_id, tokens[split]) for split in FILES}
        for stream in splits["train"]:
            vectors[stream, name] = [splits[split][stream] for split in FILES]
    for stream, table in embedding_tables(model).items():
        vectors[stream, "embeddings"] = [table.cpu().numpy()[ids[split]] for split in FILES]
    streams, counts = {}, {}
    for (stream, name), (train, test) in sorted(vectors.items()):
        chosen, found = probe(train, test, gold["train"])
        found = by_sentence(found, gold["test"])
        score = chunk_score(gold["test"], found, bootstrap=args.bootstrap, seed=args.seed)
        streams.setdefault(stream, {})[name] = chosen | {"test": asdict(score)}
        counts[stream, name] = chunk_counts(gold["test"], found)
    result = {"text": facts, "streams": streams}
    if "syntactic" in streams:
        both = counts["semantic", "encoder"], counts["syntactic", "encoder"]
        result["syntactic_minus_semantic"] = {
            "f1": streams["syntactic"]["encoder"]["test"]["f1"] - streams["semantic"]["encoder"]["test"]["f1"],
            "interval": CHUNK_F1.paired_interval(*both, args.bootstrap, args.seed) if args.bootstrap else None,
        }
    return result | {"seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {' and '.join(FILES.values())}")
    add_models(parser)
    help = "lower-case the text, as that of the models was"
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, default=True, help=help)
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for the interval of F1")
    parser.add_argument("--seed", type=int, default=1, help="of the untrained encoders and the resamples")
    parser.add_argument("--output", type=Path, default=RESULTS / "chunking", help="folder for a file a model")
    args = parser.parse_args()
    try:
        run(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def run(args: argparse.Namespace) -> None:
    """Write the results file of the baseline and of every model."""
    files = {name: args.data / name for name in FILES.values()}
    models = read_models(args.models)
    text = {split: read_conll(files[name]) for split, name in FILES.items()}
    config = {"experiment": "chunking", "seed": args.seed, "bootstrap": args.bootstrap}
    gold = [sentence.chunk_tags for sentence in text["test"]]
    score = chunk_score(gold, baseline(text["train"], text["test"]), bootstrap=args.bootstrap, seed=args.seed)
    write_json(records.record(config, files) | {"test": asdict(score)}, args.output / "baseline.json")
    layer = {"penalties": PENALTIES, "tolerance": TOLERANCE, "dev_share": DEV_SHARE, "lowercase": args.lowercase}
    for frozen in models:
        model, tokenizer = frozen.load()
        head = records.record(config | layer | frozen.config(model), files | frozen.files)
        head["software"]["scikit-learn"] = sklearn.__version__
        result = measure(model, tokenizer, text, args)
        write_json(head | result, args.output / f"{frozen.stem}.json")
        print(f"{frozen.stem}: {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
