"""The analyses of a corpus written from their formulas, one number at a time, from passes over single pairs."""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import torch

PUNCTUATION = ".,!?"


def shares(row):
    total = sum(row)
    return [x / total for x in row]


def entropy(row):
    return -sum(x * math.log(x) for x in shares(row) if x > 0)


def divergence(first, second):
    """Eq. 14 of rows as they are."""
    mean = [(x + y) / 2 for x, y in zip(first, second, strict=True)]
    return sum(0.5 * x * math.log(x / m) for row in (first, second) for x, m in zip(row, mean, strict=True) if x > 0)


def first_best(row):
    return max(range(len(row)), key=lambda i: (row[i], -i))


def mean_of(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


@dataclass
class Slow:
    """Sums and numbers over a corpus, by measure, layer and what else tells them apart."""

    sums: dict = field(default_factory=lambda: defaultdict(float))
    numbers: dict = field(default_factory=lambda: defaultdict(int))

    def add(self, value, *key):
        self.sums[key] += float(value)
        self.numbers[key] += 1

    def mean(self, *key):
        return self.sums[key] / self.numbers[key]


def observe_slowly(model, tokenizer, word_ids_of, pairs, tag_of, thresholds, buckets):
    """Observe pairs (source, target) of a model with `calibration` and `leaky`, one number at a time.

    Args:
        word_ids_of: text, whether it is a target -> the word of each token, -1 for none.
        tag_of: word -> tag.
    """
    slow = Slow()
    for index, (source, target) in enumerate(pairs):
        labels = tokenizer(text_target=[target], return_tensors="pt")["input_ids"]
        model.eval()
        with torch.no_grad():
            outputs = model(
                **tokenizer([source], return_tensors="pt"),
                labels=labels,
                output_attentions=True,
                output_attention_details=True,
            )
        model.train()
        source_words, target_words = word_ids_of(source), word_ids_of(target, target=True)
        right = (outputs.logits[0].argmax(dim=-1) == labels[0]).tolist()
        for layer in range(len(outputs.cross_attentions)):
            details = (
                outputs.uncalibrated_cross_attentions,
                outputs.calibration_masks,
                outputs.cross_attentions,
                outputs.null_attentions,
                outputs.calibration_gates or outputs.null_attentions,  # the latter stand in for no gates
            )
            a, m, c, null, g = (of[layer][0].tolist() for of in details)
            _add_layer(
                slow,
                layer,
                a,
                m,
                c,
                null,
                g,
                source,
                source_words,
                target.split(),
                target_words,
                tag_of,
                thresholds,
                buckets,
            )
            _add_links(slow, index, layer, a, m, null, source_words, target_words)
        for j in range(len(target.split())):
            slow.sums["predicted", index, j] = any(
                hit for hit, word in zip(right, target_words, strict=True) if word == j
            )
    return slow


def contributions_of(a, m, null):
    """Eq. 6 of one row: the perturbed weights are `m a + (1 - m) mu`, mu what is not on NULL, spread evenly."""
    even = (1 - null) / len(a)
    return [abs(y * x + (1 - y) * even - x) for x, y in zip(a, m, strict=True)]


def _add_layer(slow, layer, a, m, c, null, g, source, source_words, target, target_words, tag_of, thresholds, buckets):
    heads, steps = len(a), len(a[0])
    for t in range(steps):
        rows = [a[h][t] for h in range(heads)]
        used = [c[h][t] for h in range(heads)]
        phi = [contributions_of(a[h][t], m[h][t], null[h][t]) for h in range(heads)]
        average = mean_of(rows)
        reliable = first_best(average) == first_best(mean_of(phi))
        slow.add(entropy(average), "average_entropy", layer)
        slow.add(reliable, "reliability", layer)
        slow.add(first_best(average) != first_best(mean_of(used)), "moved", layer)
        apart = [max(row) - min(row) >= 2**-7 for row in (m[h][t] for h in range(heads))]
        slow.add(2 * sum(apart) >= heads, "informed", layer)
        for h in range(heads):
            slow.add(apart[h], "head", "informed", layer, h)
            values = {
                "entropy": entropy(rows[h]),
                "null": null[h][t],
                "mask": sum(m[h][t]) / len(m[h][t]),
                "attended_mask": sum(x * y for x, y in zip(m[h][t], shares(rows[h]), strict=True)),
                "gate": g[h][t],
                "mass": sum(used[h]) / sum(rows[h]),
                "divergence": divergence(rows[h], used[h]),
                "divergence_normalized": divergence(shares(rows[h]), shares(used[h])),
                "entropy_change": entropy(used[h]) - entropy(rows[h]),
            }
            for name, value in values.items():
                slow.add(value, name, layer)
                slow.add(value, "head", name, layer, h)
            slow.add(first_best(rows[h]) == first_best(phi[h]), "head", "reliability", layer, h)
            slow.add(first_best(rows[h]) != first_best(used[h]), "head", "moved", layer, h)
            bucket = sum(bound <= values["entropy"] for bound in buckets)
            slow.add(values["divergence"], "bucket", layer, bucket)
        for bound in thresholds:
            if entropy(average) <= bound:
                slow.add(reliable, "up to", layer, bound)
        if target_words[t] >= 0:
            tag = tag_of(target[target_words[t]])
            slow.add(reliable, "tag", "reliability", layer, tag)
            slow.add(entropy(average), "tag", "average_entropy", layer, tag)
        for group in range(3):
            slow.add(
                sum(x for x, word in zip(average, source_words, strict=True) if group_of(source, word) == group),
                "group",
                layer,
                group,
            )


def group_of(source, word):
    if word < 0:
        return 2
    return int(all(character in PUNCTUATION for character in source.split()[word]))


def _add_links(slow, index, layer, a, m, null, source_words, target_words):
    """The best source word: weights are summed over its tokens and averaged over those of the target word."""
    heads, steps = range(len(a)), range(len(a[0]))
    attention = [mean_of([a[h][t] for h in heads]) for t in steps]
    phi = [mean_of([contributions_of(a[h][t], m[h][t], null[h][t]) for h in heads]) for t in steps]
    for name, rows in (("attention", attention), ("contribution", phi)):
        for j in range(max(target_words) + 1):
            of_word = [rows[t] for t in steps if target_words[t] == j]
            words = [0.0] * (max(source_words) + 1)
            for row in of_word:
                for weight, word in zip(row, source_words, strict=True):
                    if word >= 0:
                        words[word] += weight / len(of_word)
            slow.sums["best", name, index, layer, j] = first_best(words)
