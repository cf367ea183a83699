"""Embeddings of words: which are whole tokens, their nearest neighbours, and a map of them in the plane."""

from collections.abc import Collection

import numpy as np
import torch
from sklearn.manifold import TSNE
from torch import Tensor


def by_stream(semantic: Tensor, syntactic: Tensor | None) -> dict[str, Tensor]:
    """Stream -> what it has: `syntactic` and `semantic`, or `only` in a model with one stream."""
    return {"only": semantic} if syntactic is None else {"syntactic": syntactic, "semantic": semantic}


def embedding_tables(model) -> dict[str, Tensor]:
    """The embeddings (vocabulary, d_model) of what an encoder-decoder reads, as `by_stream` gives them."""
    encoder = model.get_encoder()
    syntactic = getattr(encoder, "syntactic_embed_tokens", None)
    return by_stream(encoder.embed_tokens.weight.detach(), None if syntactic is None else syntactic.weight.detach())


def whole_words(tokenizer, words: Collection[str]) -> dict[str, int]:
    """Those of the words that are one token, not the unknown one, with its number; in the given order."""
    words = list(dict.fromkeys(words))
    if not words:
        return {}
    tokens = tokenizer(words, add_special_tokens=False)["input_ids"]
    return {
        word: ids[0]
        for word, ids in zip(words, tokens, strict=True)
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id
    }


def nearest_neighbours(vectors: Tensor, count: int) -> Tensor:
    """The nearest others of every vector by cosine, best first; of equally near ones the first.

    Args:
        vectors: (N, d), none of them 0.
        count: 1 to N - 1.

    Returns:
        (N, count) int64, indices of vectors.

    Raises:
        ValueError: `count` out of range, or a vector of length 0, which has no direction.
    """
    if not 1 <= count < len(vectors):
        raise ValueError(f"`count` must be from 1 to {len(vectors) - 1} for {len(vectors)} vectors, got {count}.")
    lengths = vectors.double().norm(dim=1, keepdim=True)
    if not (lengths > 0).all():
        raise ValueError(f"`vectors` must have a length above 0, but number {int(lengths.argmin())} has none.")
    unit = vectors.double() / lengths
    near = (unit @ unit.mT).fill_diagonal_(-torch.inf)
    return near.sort(dim=1, descending=True, stable=True).indices[:, :count]


def plane(vectors: Tensor, seed: int = 0) -> np.ndarray:
    """t-SNE by cosine (van der Maaten and Hinton, 2008), by scikit-learn: (N, 2) of (N, d), the same for one seed.

    Raises:
        ValueError: fewer than 4 vectors, of which no map can be made.
    """
    if len(vectors) < 4:
        raise ValueError(f"A map needs at least 4 vectors, got {len(vectors)}. Give more words.")
    # The perplexity is the usual one, below a third of the vectors where there are few.
    method = TSNE(metric="cosine", init="pca", perplexity=min(30, (len(vectors) - 1) / 3), random_state=seed)
    return method.fit_transform(vectors.float().cpu().numpy())
