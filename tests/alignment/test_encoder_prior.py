"""A pretrained encoder under counts, against loops over words and tokens; what is believed of it, and its limits."""

import copy
import functools
import math
import os
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from aligner_helpers import PAIRS, counting_aligner, tiny_mask_align
from helpers import assert_close
from safetensors.torch import save_file
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, randomized, sized, text_model
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

from hf_attncal import WordAligner, align, align_quick, train_aligner
from hf_attncal.alignment import count_learner, encoder_prior, statistical
from hf_attncal.alignment.aligner_opening import name_of_encoder
from hf_attncal.alignment.count_learner import CountLearner
from hf_attncal.alignment.encoder_prior import TEMPERATURE, EncoderPrior
from hf_attncal.alignment.encoder_reader import EmbeddingRows, EncoderReader, default_layer, rows_in_file
from hf_attncal.alignment.likelihood_ratio import MOST, EncoderFactors, LikelihoodRatio
from hf_attncal.alignment.seq2seq import Seq2SeqAttention
from hf_attncal.alignment.statistical import quick_aligner
from hf_attncal.alignment.token_vectors import TokenVectors
from hf_attncal.commands import main
from hf_attncal.commands.app import UsageError, call_of
from hf_attncal.data.word_tokens import WordTokenizer
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError
from hf_attncal.layouts import DEFAULT_ENCODER
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.functional_jumps import initial_jumps, learned_jumps
from hf_attncal.models.modeling_hmm_align import HMMAlignModel
from hf_attncal.models.modeling_mask_align import MaskAlignModel

# What is random knows no language.
pytestmark = pytest.mark.filterwarnings("ignore:the encoder recognises")

TEXTS = [(tuple(source.split()), tuple(target.split())) for source, target in zip(SOURCES, TARGETS, strict=True)]


@functools.cache
def encoder(kind: str = "bert"):
    """A random model with an encoder, that tests copy."""
    size = sized(bpe_tokenizer())
    bert = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    bert |= {"vocab_size": size["vocab_size"], "pad_token_id": size["pad_token_id"], "max_position_embeddings": 70}
    torch.manual_seed(5)
    made = {
        "bert": lambda: BertModel(BertConfig(**bert)),
        "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(**bert)),
    }
    return randomized(made[kind]()).eval()


def prior(kind: str = "bert", layer: int = 2, dtype: torch.dtype = torch.float32) -> EncoderPrior:
    return EncoderPrior(copy.deepcopy(encoder(kind)), bpe_tokenizer(), layer, dtype=dtype)


def believed() -> EncoderPrior:
    """One that is believed though it is random."""
    made = prior()
    made.cells(TEXTS)
    made.likelihood.strength = 1.0
    return made


def states_by_hand(kind: str, texts, layer: int) -> list[torch.Tensor]:
    """Return the mean state of the tokens of each word, from a separate call of the encoder for each text."""
    tokenizer, found = bpe_tokenizer(), []
    for text in texts:
        ids = tokenizer(" ".join(text))["input_ids"]
        model = encoder(kind)
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0].double()
        place = 0
        rows = []
        for word in text:
            size = len(tokenizer(word, add_special_tokens=False)["input_ids"])
            rows.append(states[place : place + size].mean(dim=0))
            place += size
        found.append(torch.stack(rows))
    return found


def slow_cells(sides) -> list[list[list[float]]]:
    """e of each pair by loops, from the states of the words of both sides."""
    means = []
    for side in sides:
        words = [word for text in side for word in text]
        means.append(sum(words) / (len(words) + 10))
    found = []
    for source, target in zip(*sides, strict=True):
        ours, theirs = ([word - mean for word in text] for text, mean in zip((source, target), means, strict=True))
        score = [[float(a @ b / a.norm() / b.norm()) / TEMPERATURE for b in theirs] for a in ours]
        forward = [[math.exp(c) / sum(map(math.exp, row)) for c in row] for row in score]
        columns = [sum(math.exp(row[j]) for row in score) for j in range(len(theirs))]
        backward = [[math.exp(c) / columns[j] for j, c in enumerate(row)] for row in score]
        found.append(
            [[2 * f * b / (f + b) for f, b in zip(*rows, strict=True)] for rows in zip(forward, backward, strict=True)]
        )
    return found


@pytest.mark.parametrize(("kind", "layer"), [("bert", 2), ("bert", 0), ("xlm-roberta", 3)])
def test_encoder_probabilities_equal_the_loops(kind, layer):
    found = prior(kind, layer).cells(TEXTS)
    sides = [states_by_hand(kind, [pair[side] for pair in TEXTS], layer) for side in (0, 1)]
    for cells, expected, pair in zip(found, slow_cells(sides), TEXTS, strict=True):
        assert cells.shape == (len(pair[0]), len(pair[1]))
        assert cells.dtype == np.float16
        assert_close(torch.from_numpy(cells).double(), torch.tensor(expected).double(), 2e-3)


def test_only_the_layers_that_are_read_are_kept_and_the_words_stay_in_their_type():
    made = prior(layer=2, dtype=torch.bfloat16)
    model = made.reader.model
    assert len(model.encoder.layer) == 2
    assert {tensor.dtype for tensor in model.encoder.parameters()} == {torch.bfloat16}
    assert model.embeddings.word_embeddings.weight.dtype == torch.float32
    assert model.embeddings.LayerNorm.weight.dtype == torch.bfloat16
    for one, other in zip(made.cells(TEXTS), prior(layer=2).cells(TEXTS), strict=True):
        assert 0 < np.abs(one.astype(float) - other).max() < 0.3
    assert default_layer(encoder("bert")) == 2
    with pytest.raises(ValueError, match="`layer` must be from -4 to 3 of the encoder, got 4"):
        prior(layer=4)


def test_probabilities_do_not_depend_on_other_pairs_or_their_order(monkeypatch):
    made = prior()
    whole = made.cells(TEXTS)
    monkeypatch.setattr(encoder_prior, "_BATCH_TOKENS", 30)
    again = made.cells([(), *TEXTS[::-1]][1:])[::-1]
    alone = [made.cells([pair])[0] for pair in TEXTS]
    for one, two, three in zip(whole, again, alone, strict=True):
        assert_close(torch.from_numpy(one).float(), torch.from_numpy(two).float(), 2e-3)
        assert_close(torch.from_numpy(one).float(), torch.from_numpy(three).float(), 2e-3)


def test_cached_pairs_are_not_read_again(monkeypatch):
    made = prior()
    kept = made.remember(TEXTS)
    monkeypatch.setattr(EncoderReader, "states", lambda *_: pytest.fail("the encoder was read"))
    for one, other in zip(made.cells(TEXTS), kept, strict=True):
        assert one is other
    empty = made.cells([((), ("a",)), (("a", "b"), ())])
    assert [cells.shape for cells in empty] == [(0, 1), (2, 0)]


def test_a_sentence_is_read_once(monkeypatch):
    read, states = [], EncoderReader.states
    monkeypatch.setattr(EncoderReader, "states", lambda self, ids: read.append(len(ids)) or states(self, ids))
    prior().cells([TEXTS[0], TEXTS[0], (TEXTS[0][0], TEXTS[1][1])])
    assert sum(read) == 3  # one source, two targets


# ---- what is believed ----


def bin_of(value: float) -> int:
    steps = [1e-4 * (0.9 / 1e-4) ** (k / 22) for k in range(23)]
    return sum(value > step * (1 + 1e-6) for step in steps)


class SlowRatio:
    """The table by loops over cells."""

    def __init__(self):
        self.ratio, self.linked, self.apart = [1.0] * 24, [0.0] * 24, [0.0] * 24

    def factor(self, value: float) -> float:
        return min(self.ratio[bin_of(value)], MOST)

    def count(self, value: float, linked: float) -> None:
        self.linked[bin_of(value)] += linked
        self.apart[bin_of(value)] += 1 - linked

    def learn(self) -> None:
        steps = [1e-4 * (0.9 / 1e-4) ** (k / 22) for k in range(23)]
        middle = [steps[0] / 2, *(math.sqrt(a * b) for a, b in pairwise(steps)), 0.97]
        chance = [(n + 1) / (sum(self.apart) + 24) for n in self.apart]
        expected = [(m + 0.02) / 0.06 * c for m, c in zip(middle, chance, strict=True)]
        for k in range(24):
            share = (self.linked[k] + 30 * expected[k] / sum(expected)) / (sum(self.linked) + 30)
            self.ratio[k] = share / chance[k]
        self.linked, self.apart = [0.0] * 24, [0.0] * 24


# Tokens of both sides with the word of each, and what an encoder says of the words; a token of no word, too.
TOKENS = [
    (([1, 2, 3, 1], [0, 0, 1, 2]), ([4, 5, 4], [0, 1, 1])),
    (([1, 3], [0, 1]), ([4, 6], [0, 1])),
    (([2], [0]), ([5, 4], [0, NO_WORD])),
    (([7, 2, 1], [0, 1, 1]), ([5, 8, 4, 4], [0, 0, 1, 2])),
]


def sides_of(tokens) -> list[WordTokens]:
    return [WordTokens(np.array(ids), np.array(words), max(words) + 1) for pair in tokens for ids, words in pair]


def random_cells(sides, seed: int = 0) -> list[np.ndarray]:
    numbers = np.random.default_rng(seed)
    return [
        (numbers.random((source.words, target.words)) ** 3).astype(np.float16)
        for source, target in zip(sides[::2], sides[1::2], strict=True)
    ]


def test_counts_learn_with_an_encoder_as_the_loops_do():
    """Four iterations: the factor at its place, what two words are linked, the table, and all of the counts."""
    sides = sides_of(TOKENS)
    cells, likelihood, slow = random_cells(sides), LikelihoodRatio(), SlowRatio()
    config = HMMAlignConfig(vocab_size=9, identical_prior=0.1)
    model = HMMAlignModel(config).eval()
    tokens = [side.ids for side in sides]
    learner = CountLearner(model, tokens[::2], tokens[1::2], encoder_factors=EncoderFactors(likelihood, cells, sides))
    zeros = [[0.0] * 9 for _ in range(4)]
    twin = reference.SlowHMM(config, {}, zeros[:2], zeros[2:], [initial_jumps(40).tolist() for _ in range(2)])
    shares = [None] * len(TOKENS)
    for number, (jumps, agree, damped) in enumerate(
        [(False, False, False), (False, True, False), (True, True, False), (True, True, True)]
    ):
        learner.step(jumps=jumps, agree=agree, damped=damped)
        counts, totals, nulls = {}, [[0.0] * 9 for _ in range(2)], [[0.0] * 9 for _ in range(2)]
        tables = [[[0.0] * 81 for _ in range(2)] for _ in range(2)]
        for row, ((source, of_source), (target, of_target)) in enumerate(TOKENS):
            known = [
                [
                    1.0
                    if NO_WORD in (of_source[s], of_target[t])
                    else slow.factor(cells[row][of_source[s], of_target[t]])
                    for s in range(len(source))
                ]
                for t in range(len(target))
            ]
            both = twin.both(source, target, shares[row], None if jumps else 1.0, known)
            found = [[0.0] * len(source) for _ in target]
            linked = {}
            for t in range(len(target)):
                for s in range(len(source)):
                    one, other = both[0]["weights"][t][s], both[1]["weights"][s][t]
                    share = one * other if agree else (one + other) / 2
                    share = (share + shares[row][t][s]) / 2 if damped else share
                    found[t][s] = share
                    pair = source[s], target[t]
                    counts[pair] = counts.get(pair, 0.0) + share
                    totals[0][source[s]] += share
                    totals[1][target[t]] += share
                    if NO_WORD not in (of_source[s], of_target[t]):
                        words = of_source[s], of_target[t]
                        linked[words] = max(linked.get(words, 0.0), share)
            for words, share in linked.items():
                slow.count(float(cells[row][words]), min(share, 1.0))
            for s, token in enumerate(source):
                nulls[0][token] += max(0.0, 1 - sum(found[t][s] for t in range(len(target))))
            for t, token in enumerate(target):
                nulls[1][token] += max(0.0, 1 - sum(found[t]))
            for table, direction in zip(tables, both, strict=True):
                for place, name in enumerate(("jumps", "chances")):
                    table[place] = [a + b for a, b in zip(table[place], direction[name], strict=True)]
            shares[row] = found
        slow.learn()
        twin.counts, twin.totals, twin.null_counts = counts, totals, nulls
        if jumps:
            twin.jumps = [learned_jumps(*map(torch.tensor, table)).tolist() for table in tables]
        assert_close(likelihood.ratios.double(), torch.tensor(slow.ratio).double(), 2e-2 if number else 1e-3, "ratio")
        for row, of_pair in learner.shares():
            assert_close(of_pair.double(), torch.tensor(shares[row]).double(), 3e-3, f"iteration {number}")
    assert likelihood.learned
    assert max(slow.ratio) > 1.5 * min(slow.ratio)


def test_an_unused_encoder_changes_nothing():
    """Exactly: the tables, and the links with their scores."""

    unknown = prior()  # it is random, so that its words are as much alike in any two sentences
    with pytest.warns(UserWarning, match="not used: the text is aligned without it"):
        plain, helped = quick_aligner(PAIRS), quick_aligner(PAIRS, encoder=unknown)
    assert unknown.likelihood.strength == unknown.share == 0
    assert max(unknown.recognised_shares) < 0.1
    for name, table in plain.model.state_dict().items():
        assert torch.equal(table, helped.model.state_dict()[name]), name
    assert plain.align(PAIRS) == helped.align(PAIRS)


# ---- text that an encoder knows ----


def dictionary(size: int = 300) -> dict[str, str]:
    """Words of random letters of two scripts."""
    numbers = random.Random(7)
    words = ("".join(numbers.choices(letters, k=5)) for letters in ("abcdefghij", "αβγδεζηθικ") for _ in range(size))
    words = list(words)
    return dict(zip(words[:size], words[size:], strict=True))


DICTIONARY = dictionary()
translated = DICTIONARY.__getitem__


class Knowing(EncoderPrior):
    """Encoder that has the translations of a share of the words, and random states for the others."""

    def __init__(self, share: float = 1.0):
        self.likelihood, self.recognised_shares, self.share_known = LikelihoodRatio(), (1.0, 1.0), share
        self._cache, self.numbers = {}, random.Random(3)

    def cells(self, pairs, vectors=None):
        found = []
        for source, target in pairs:
            cells = np.zeros((len(source), len(target)), np.float16)
            for i, a in enumerate(source):
                right = [j for j, b in enumerate(target) if b == translated(a)]
                if self.numbers.random() > self.share_known or not right:
                    right = [self.numbers.randrange(len(target))]
                cells[i, right[0]] = 0.9
            found.append(self._cache.get((source, target), cells))
        return found


@pytest.fixture(scope="module")
def corpus():
    """Pairs of six words in any order, most of which occur once or twice: counts have little to learn from."""
    numbers = random.Random(1)
    pairs = []
    for _ in range(60):
        words = numbers.choices([*DICTIONARY], k=6)
        pairs.append((" ".join(words), " ".join(map(translated, numbers.sample(words, 6)))))
    return pairs


def share_right(aligner, pairs) -> float:
    found = aligner.align(pairs)
    right = [one.target[j] == translated(one.source[i]) for one in found for i, j in one.links]
    return (2 * sum(right) - len(right)) / (6 * len(pairs))


def test_a_good_encoder_helps_and_a_random_one_hardly_hurts(corpus):
    alone = share_right(quick_aligner(corpus), corpus)
    knowing, half, ignorant = (Knowing(share) for share in (1.0, 0.6, 0.0))
    helped = [share_right(quick_aligner(corpus, encoder=one), corpus) for one in (knowing, half, ignorant)]
    assert helped[0] > 0.95 > alone + 0.3
    assert helped[1] > alone + 0.1
    assert helped[2] > alone - 0.1
    said = [float(one.likelihood.ratios[bin_of(0.899)]) for one in (knowing, half, ignorant)]
    assert said[0] > 2 * said[1] > 4 * said[2]


def test_an_aligner_of_another_text_learns_the_weight_of_the_encoder(corpus):
    aligner, plain = counting_aligner(corpus), quick_aligner(corpus)
    without = aligner.align(corpus)
    knowing = Knowing()
    aligner.use_encoder(knowing)
    assert share_right(aligner, corpus) > 0.8 > share_right(plain, corpus) + 0.2
    assert knowing.likelihood.learned
    aligner.use_encoder(None)
    assert aligner.align(corpus) == without
    aligner.use_encoder(Knowing())
    with pytest.raises(ValueError, match="an aligner with an encoder cannot adapt"):
        aligner.adapt(corpus)


def test_identical_words_count_only_without_a_useful_encoder(corpus, monkeypatch):
    seen = []
    monkeypatch.setattr("hf_attncal.alignment.statistical.set_prior_counts", lambda *_: seen.append("similar"))
    for prior, expected in ((None, 1), (Knowing(), 1), (Knowing(0.0), 1)):
        quick_aligner(corpus, encoder=prior)
        assert len(seen) == expected
    unknown = Knowing(0.0)
    unknown.likelihood.strength = 0.0
    quick_aligner(corpus, encoder=unknown)
    assert len(seen) == 2


def test_a_long_line_is_read_with_its_own_cells(corpus):
    """Lines are read in windows, and in parts if no link crosses."""
    aligner = quick_aligner(corpus, encoder=Knowing())
    aligner.source.prior = Knowing()
    long = [tuple(" ".join(sides) for sides in zip(*corpus[:12], strict=True))]
    aligner.model.config.max_position_embeddings = 24
    in_windows = aligner.align(long)[0]
    aligner.model.config.max_position_embeddings = 1024
    whole = aligner.align(long)[0]
    for found in (in_windows, whole):
        right = [found.target[j] == translated(found.source[i]) for i, j in found.links]
        assert sum(right) > 0.8 * len(right) > 0.4 * 72


def test_a_network_can_be_combined_with_an_encoder():
    network = WordAligner(tiny_mask_align(bpe_tokenizer()), bpe_tokenizer())
    text = [(" ".join(source), " ".join(target)) for source, target in TEXTS]
    before = network.align(text, threshold=0.0)
    network.use_encoder(believed())
    after = network.align(text, threshold=0.0)
    assert [one.links for one in before] == [one.links for one in after]
    assert [one.scores for one in before] != [one.scores for one in after]
    network.use_encoder(None)
    assert network.align(text, threshold=0.0) == before


def test_attention_can_be_combined_with_an_encoder():
    aligner = WordAligner(text_model("marian", "stock"), bpe_tokenizer(), Seq2SeqAttention(1, (0,), threshold=0.0))
    text = [(" ".join(source), " ".join(target)) for source, target in TEXTS]
    plain = aligner.align(text)
    judge = believed()
    aligner.use_encoder(judge)
    for before, after, cells in zip(plain, aligner.align(text), judge.cells(TEXTS), strict=True):
        attention, both = (dict(zip(one.links, one.scores, strict=True)) for one in (before, after))
        for link, score in both.items():
            assert score == pytest.approx(0.5 * attention.get(link, 0.0) + 0.5 * float(cells[link]), abs=1e-6)
        assert attention.keys() <= both.keys()


# ---- commands ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder")
    encoder().save_pretrained(path)
    bpe_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def files(tmp_path):
    for name, side in (("source", 0), ("target", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    return [f"--source={tmp_path / 'source'}", f"--target={tmp_path / 'target'}"]


def test_the_commands_take_an_encoder(folder, files, tmp_path, capsys):
    assert main(["align", "quick", *files, "--encoder", str(folder)]) == 0
    out = capsys.readouterr().out
    found = align_quick(PAIRS, encoder=EncoderPrior.from_pretrained(folder))
    assert out.splitlines() == [one.pharaoh() for one in found]
    assert found == align_quick(PAIRS, encoder=folder)
    counts = counting_aligner(PAIRS)
    counts.model.save_pretrained(tmp_path / "counts")
    counts.tokenizer.save_pretrained(tmp_path / "counts")
    assert main(["align", "run", str(tmp_path / "counts"), *files, "--encoder", str(folder)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PAIRS)
    assert main(["align", "run", str(tmp_path / "counts"), *files, "--encoder", str(folder), "--adapt"]) == 1
    assert "--adapt and --encoder cannot go together" in capsys.readouterr().err
    before = counts.align(PAIRS)
    assert align(counts, PAIRS, encoder=believed()) != before == counts.align(PAIRS)
    assert align(counts, PAIRS, encoder=folder) == before  # which is random
    prior = EncoderPrior.from_pretrained(folder)
    loaded = WordAligner.from_pretrained(tmp_path / "counts", encoder=prior, device="cpu")
    assert loaded.align(PAIRS) == align(str(tmp_path / "counts"), PAIRS, encoder=folder)


@pytest.fixture
def trusted(monkeypatch):
    """Every encoder is trusted, also a random one."""
    monkeypatch.setattr(encoder_prior, "_MIN_RECOGNISED", -3)
    monkeypatch.setattr(encoder_prior, "_ENOUGH_RECOGNISED", -2)


def test_parts_with_an_encoder_are_what_one_run_writes(folder, tmp_path, trusted):
    generator, words = random.Random(3), [sorted({word for pair in TEXTS for word in pair[side]}) for side in (0, 1)]
    for name, of_side in zip(("source", "target"), words, strict=True):
        lines = (" ".join(generator.choices(of_side, k=generator.randint(1, 9))) for _ in range(100))
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    counts, parts = counting_aligner(PAIRS), tmp_path / "parts"
    for part in (counts.model, counts.tokenizer):
        part.save_pretrained(tmp_path / "counts")
    command = ["align", "run", str(tmp_path / "counts"), f"--source={tmp_path / 'source'}", "--batch-size=2"]
    command += [f"--target={tmp_path / 'target'}", "--encoder", str(folder), "--scores", "--device=cpu"]
    assert main([*command, "--output", str(tmp_path / "whole")]) == 0
    for number in (3, 2, 1):
        assert main([*command, "--output", str(parts), f"--shard={number}/3"]) == 0
    assert b"".join(part.read_bytes() for part in sorted(parts.glob("*.links"))) == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(("given", "expected"), [(None, "64"), ("9", "9")])
def test_few_kernels_are_kept_in_memory(folder, monkeypatch, given, expected):
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, given or "")
    if given is None:
        monkeypatch.delenv(name)
    EncoderPrior.open(str(folder), Running(device="cpu"))
    assert os.environ[name] == expected


def test_capitals_are_read_as_small_letters_and_long_words_in_part():
    upper, lower = (
        [(tuple(map(change, source)), target) for source, target in TEXTS] for change in (str.upper, str.lower)
    )
    for found, expected in zip(prior().cells(upper), prior().cells(lower), strict=True):
        np.testing.assert_array_equal(found, expected)
    name = ("Das", "Haus", "der", "EU")  # a word in capitals alone stays
    assert encoder_prior._readable(name) == "Das Haus der EU"
    assert encoder_prior._readable(("A" * 9000,)) == "a" * 200


def test_versions_of_one_sentence_are_no_chance():
    repeated, varied = prior(), prior()
    repeated.cells([TEXTS[0]] * 20 + [TEXTS[1]] * 20)
    varied.cells(TEXTS[:2])
    assert repeated.recognised_shares == pytest.approx(varied.recognised_shares, abs=0.2)
    alone = prior()
    alone.cells([TEXTS[0]] * 20)
    assert alone.recognised_shares is None
    assert alone.likelihood.strength == 1.0


def test_scores_with_an_encoder_are_probabilities_to_choose_by(folder, files, trusted, capsys):
    every = align_quick(PAIRS, encoder=EncoderPrior.from_pretrained(folder))
    least = sorted(score for one in every for score in one.scores)[3]
    chosen = align_quick(PAIRS, encoder=EncoderPrior.from_pretrained(folder), least_probability=least)
    for one, all_links in zip(chosen, every, strict=True):
        kept = {link: score for link, score in zip(all_links.links, all_links.scores, strict=True) if score >= least}
        assert dict(zip(one.links, one.scores, strict=True)) == kept
    assert sum(len(one.links) for one in chosen) == sum(len(one.links) for one in every) - 3
    assert main(["align", "quick", *files, "--least-probability=0.5"]) == 1
    assert "--least-probability needs --encoder" in capsys.readouterr().err
    with pytest.raises(ValueError, match="needs a calibrated aligner"):
        counting_aligner(PAIRS).align(PAIRS, least_probability=0.5)


def test_very_long_pairs_are_counted_in_parts(monkeypatch, trusted):
    long = [(" ".join(f"s{n}" for n in range(60)), " ".join(f"t{n}" for n in range(60)))] * 3
    monkeypatch.setattr(count_learner, "_MAX_UNCUT_CELLS", 400)
    monkeypatch.setattr(count_learner, "_CELLS_OF_PART", 100)
    counted = []
    monkeypatch.setattr(
        statistical,
        "CountLearner",
        lambda model, *sides, **options: counted.append(sides) or CountLearner(model, *sides, **options),
    )
    found = align_quick(long, encoder=prior())
    assert len(counted[0][0]) == 3 * 7
    assert [len(one.source) for one in found] == [60] * 3
    parts = count_learner.parts_of_pair(tuple(range(60)), tuple(range(45)))
    assert [word for part, _ in parts for word in part] == list(range(60))
    assert [word for _, part in parts for word in part] == list(range(45))
    assert all(len(first) * len(second) <= 100 for first, second in parts)


def test_auto_is_the_default_encoder_and_the_option_takes_a_value(monkeypatch):
    checked = []
    monkeypatch.setattr("hf_attncal.alignment.aligner_opening.check_name", checked.append)
    assert [name_of_encoder(name) for name in ("auto", "./auto")] == checked == [DEFAULT_ENCODER[0], "./auto"]
    for line in (["align", "quick", "--encoder"], ["align", "run", "model", "--encoder", "--scores"]):
        with pytest.raises(UsageError, match="--encoder"):
            call_of([*line, "--source=a", "--target=b"])


def test_unusable_encoders_are_named(folder, files, tmp_path, capsys):
    assert main(["align", "run", str(folder), *files]) == 1
    assert "`attncal align quick --encoder`" in capsys.readouterr().err
    for wrong in (str(tmp_path / "nothing"), str(tmp_path)):
        assert main(["align", "quick", *files, "--encoder", wrong]) == 1
        error = capsys.readouterr().err
        assert error.startswith("attncal: error: ")
        assert error.count("\n") == 1
    with pytest.raises(CommandError, match="nothing"):
        align_quick(PAIRS, encoder=tmp_path / "nothing")


# ---- training ----


def trained(corpus, encoder_folder, folder, monkeypatch, *settings) -> Path:
    """What `align train --encoder` made with an encoder that knows."""
    read = []

    class Reading(Knowing):
        def cells(self, pairs, vectors=None):
            assert all(word.isupper() for pair in pairs for side in pair for word in side)  # before it is folded
            return super().cells([tuple(tuple(map(str.lower, side)) for side in pair) for pair in pairs], vectors)

    def known(name):
        read.append(name)
        return Reading()

    monkeypatch.setattr(EncoderPrior, "from_pretrained", known)
    for name, side in (("source", 0), ("target", 1)):
        lines = [pair[side].upper() for pair in corpus]
        # Lines that are left out, too short and too long, are read by nobody.
        (folder / name).write_text("".join(f"{line}\n" for line in ["A", *lines, "A " * 99]), encoding="utf-8")
    files = [f"--source={folder / 'source'}", f"--target={folder / 'target'}", f"--output={folder / 'aligner'}"]
    given = ["tokenizer.vocab_size=400", "data.max_length=90", "data.held_out_pairs=5", *settings]
    assert main(["align", "train", *files, "--encoder", str(encoder_folder), *given]) == 0
    assert read == [str(encoder_folder)]
    return folder / "aligner"


@pytest.mark.filterwarnings("ignore:Kept")
def test_counts_learned_with_an_encoder_do_not_need_it_later(corpus, folder, tmp_path, monkeypatch):
    aligner = WordAligner.from_pretrained(trained(corpus, folder, tmp_path, monkeypatch, "preset=hmm"), device="cpu")
    assert aligner.source.prior is None
    assert share_right(aligner, corpus) > 0.8 > share_right(counting_aligner(corpus), corpus) + 0.2


def vectors_by_hand(texts, width: int) -> list[np.ndarray]:
    """Vectors of the tokens of each language by loops, on the principal axes of numpy's SVD."""
    languages = []
    for side in (0, 1):
        states = states_by_hand("bert", [pair[side] for pair in texts], 2)
        sample = states[:: -(-len(states) // 3)]
        mean = sum(word for text in sample for word in text) / (sum(map(len, sample)) + 10)
        sums = {}
        for pair, of_text in zip(texts, states, strict=True):
            for word, state in zip(pair[side], of_text, strict=True):
                centred = (state - mean).numpy()
                for token in bpe_tokenizer()(word, add_special_tokens=False)["input_ids"]:
                    sums[token] = sums.get(token, 0) + centred / np.linalg.norm(centred)
        languages.append({token: vector / np.linalg.norm(vector) for token, vector in sums.items()})
    axes = np.linalg.svd(np.stack([vector for language in languages for vector in language.values()]))[2][:width]
    found = []
    for language in languages:
        table = np.zeros((len(bpe_tokenizer()), width))
        for token, vector in language.items():
            table[token, : len(axes)] = axes @ vector / np.linalg.norm(axes @ vector)
        found.append(table)
    return found


@pytest.mark.parametrize("width", [3, 16, 20])
def test_vectors_of_tokens_equal_the_loops(width, monkeypatch):
    """All cosines do, within and between languages: the signs of principal axes are arbitrary."""
    monkeypatch.setattr(encoder_prior, "SAMPLE_PAIRS", 3)  # some pairs are read with the sample, others after it
    sides = WordTokenizer(bpe_tokenizer())([" ".join(side) for pair in TEXTS for side in pair])
    monkeypatch.setattr(encoder_prior, "recognised", lambda *_: (0.0, 0.0))
    assert prior().factors(TEXTS, sides, len(bpe_tokenizer())).vectors is None
    monkeypatch.setattr(encoder_prior, "recognised", lambda *_: (1.0, 1.0))
    assert prior().factors(TEXTS, sides).vectors is None
    vectors = prior().factors(TEXTS, sides, len(bpe_tokenizer())).vectors.projected(width)
    ours, theirs = (np.concatenate(tables) for tables in (vectors, vectors_by_hand(TEXTS, width)))
    assert_close(torch.tensor(ours @ ours.T).double(), torch.tensor(theirs @ theirs.T), 5e-3)


@pytest.mark.filterwarnings("ignore:Kept")
def test_a_network_starts_from_the_states_of_the_encoder(corpus, folder, tmp_path, monkeypatch):
    made = []

    class Vectors(TokenVectors):
        def projected(self, width):
            made.extend(super().projected(width))
            return made

    cells = Knowing.cells

    def read(self, pairs, vectors=None):
        numbers = torch.Generator().manual_seed(3)
        states = [torch.randn(6, 24, generator=numbers) for _ in pairs]
        vectors.add(range(len(pairs)), states, states)
        return cells(self, pairs)

    monkeypatch.setattr(Knowing, "cells", read)
    monkeypatch.setattr(encoder_prior, "TokenVectors", Vectors)
    size = ["model.d_model=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.ffn_dim=16"]
    steps = ["preset=small", "training.max_steps=1", "training.learning_rate=1e-7", "jump_pairs=0"]
    network = MaskAlignModel.from_pretrained(trained(corpus, folder, tmp_path, monkeypatch, *size, *steps))
    for table, vectors in zip((network.source_embeddings, network.target_embeddings), made, strict=True):
        seen = vectors.any(dim=1)
        assert_close(table.weight[seen], vectors[seen], 1e-4)
        assert 50 < seen.sum() < len(seen)
        assert table.weight[~seen].norm(dim=1).min() > 0.1  # tokens of no word are random


def test_models_that_are_not_encoders_are_refused_before_reading(files, tmp_path, capsys):
    assert main(["align", "train", *files, "--encoder", str(tmp_path / "none"), f"--output={tmp_path / 'out'}"]) == 1
    assert "none" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    sides = {"source": tmp_path / "source", "target": tmp_path / "target"}
    with pytest.raises(CommandError, match="`encoder` must be a folder or a name on the Hub, got Knowing"):
        train_aligner(**sides, output=tmp_path / "out", encoder=Knowing())


# ---- embeddings in a file ----


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
def test_embeddings_equal_those_in_the_file(stored, tmp_path):
    table = torch.nn.Embedding.from_pretrained(torch.randn(50, 6).to(stored))
    save_file({"other": torch.zeros(50, 6), "words": table.weight, "bias": torch.ones(3)}, tmp_path / "model")
    rows = rows_in_file(tmp_path / "model", table, torch.float32)
    for ids in ([[3, 3, 49]], [[0, 7], [49, 12]], [list(range(50))]):
        assert torch.equal(rows(torch.tensor(ids)), table(torch.tensor(ids)).float())
    assert rows_in_file(tmp_path / "model", torch.nn.Embedding(50, 6), torch.float32) is None
    assert rows_in_file(tmp_path / "model", torch.nn.Embedding(49, 6), torch.float32) is None
    assert rows_in_file(None, table, torch.float32) is None


def test_an_encoder_from_a_folder_gives_the_same_links_as_in_memory(folder):
    loaded = EncoderPrior.from_pretrained(folder, dtype=torch.float32)
    assert type(loaded.reader.encoder.get_input_embeddings()) is EmbeddingRows
    for one, other in zip(loaded.cells(TEXTS), prior().cells(TEXTS), strict=True):
        assert_close(torch.from_numpy(one).float(), torch.from_numpy(other).float(), 2e-3)
