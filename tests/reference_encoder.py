"""Encoder states as word alignment, from the formulas with loops over tokens; no padding, one pair at a time."""

import math

import torch


def probabilities(source, target):
    """Softmax of dot products over the source for each target token, and over the target for each source token."""
    scores = [[sum(a * b for a, b in zip(s, t, strict=True)) for s in source] for t in target]
    forward = [[_exp(cell) / sum(map(_exp, row)) for cell in row] for row in scores]
    columns = list(zip(*scores, strict=True))
    backward = [[_exp(cell) / sum(map(_exp, column)) for cell in column] for column in columns]
    return forward, backward


def word_scores(source, target, source_words, target_words, counts):
    """The largest, over their tokens, of the smaller probability of both directions, for each pair of words."""
    forward, backward = probabilities(source, target)
    best = torch.zeros(counts, dtype=torch.float64)
    for s, i in enumerate(source_words):
        for t, j in enumerate(target_words):
            best[i, j] = max(float(best[i, j]), min(float(forward[t][s]), float(backward[s][t])))
    return best


def likelihood(probabilities, links):
    """The mean of -log of what a linked token gives its partners."""
    losses = []
    for row, partners in zip(probabilities, links, strict=True):
        if any(partners):
            losses.append(-torch.log(sum(p for p, linked in zip(row, partners, strict=True) if linked)))
    return sum(losses) / len(losses)


def disagreement(forward, backward):
    """1 less the trace of the product of both directions over the shorter length."""
    shorter = min(len(forward), len(backward))
    trace = sum(forward[t][s] * backward[s][t] for t in range(len(forward)) for s in range(len(backward)))
    return 1 - trace / shorter


def _exp(value):
    return torch.exp(value) if torch.is_tensor(value) else math.exp(value)
