"""The word aligner: words from subwords, batches, windows, and what is refused."""

import json
import math
import re
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from aligner_helpers import LIMIT, PAIRS, TEXT, tiny_mask_align
from helpers import tiny_stock_model
from picture_helpers import HOSTILE, SOURCE, TARGET, pictures_of
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, GPT2Config, PreTrainedTokenizerFast

from hf_attncal.alignment import Seq2SeqAttention, WordAligner, WordAlignment, argmax_links, seq2seq_weights
from hf_attncal.alignment.links import SYMMETRIZATIONS, order_repeats, symmetrize_batch
from hf_attncal.alignment.mask_align import MaskAlignSource, cut_pair, end_of_window
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.data.word_tokens import tokenize_words


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe_tokenizer(TEXT * 3, vocab_size=70)


@pytest.fixture(scope="module")
def aligner(tokenizer):
    return WordAligner(tiny_mask_align(tokenizer), tokenizer)


class FixedModel(torch.nn.Module):
    """Stands for a Mask-Align model: weights that a function of the token ids gives."""

    def __init__(self, forward, backward, **config):
        super().__init__()
        defaults = {"model_type": "mask_align", "alignment_threshold": 0.2, "symmetrization": "harmonic"}
        others = {"max_position_embeddings": LIMIT, "lowercase": False, "tokenize": False, "pad_token_id": 0}
        self.config = SimpleNamespace(**defaults | others | config)
        self.weights = forward, backward
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.batches = []

    def alignments(self, input_ids, attention_mask, target_input_ids, target_attention_mask):
        self.batches.append((input_ids * attention_mask, target_input_ids * target_attention_mask))
        pair = attention_mask[:, :, None] * target_attention_mask[:, None, :]
        forward = self.weights[0](input_ids, target_input_ids).transpose(1, 2) * pair.transpose(1, 2)
        backward = self.weights[1](input_ids, target_input_ids) * pair
        return SimpleNamespace(
            forward_attention=forward,
            backward_attention=backward,
            forward_null=(1 - forward.sum(2)) * target_attention_mask,
            backward_null=(1 - backward.sum(2)) * attention_mask,
        )


def slow_alignment(model, tokenizer, source: str, target: str, method: str, threshold: float):
    """One pair by loops over the definition: ({link: score}, source NULL, target NULL, sentence score)."""
    ids, words = [], []
    for text in (source, target):
        (tokens,) = tokenize_words(tokenizer, [text], special_tokens=False)
        ids.append(torch.tensor([tokens.ids.tolist()]))
        words.append(tokens.word_ids.tolist())
    ones = [torch.ones_like(side) for side in ids]
    output = model.alignments(ids[0], ones[0], ids[1], ones[1])
    forward, backward = output.forward_attention[0], output.backward_attention[0]  # (T, S), (S, T)
    n, m = len(source.split()), len(target.split())
    word_forward, word_backward, word_harmonic = torch.zeros(m, n), torch.zeros(n, m), torch.zeros(n, m)
    for s, i in enumerate(words[0]):
        for t, j in enumerate(words[1]):
            a, b = float(forward[t, s]), float(backward[s, t])
            word_forward[j, i] = max(word_forward[j, i], a)
            word_backward[i, j] = max(word_backward[i, j], b)
            word_harmonic[i, j] = max(word_harmonic[i, j], 2 * a * b / (a + b) if a + b else 0)
    both = [word_harmonic[None]] if method == "harmonic" else [word_forward.T[None], word_backward[None]]
    order_repeats(both, [(source.split(), target.split())])
    if method == "harmonic":
        links = {(i, j) for i in range(n) for j in range(m) if word_harmonic[i, j] > threshold}
        scores = word_harmonic
    else:
        found = symmetrize_batch(word_forward[None], word_backward[None], method, threshold)
        links, scores = (of_batch[0] for of_batch in found)
    nulls = []
    for side, null, count in ((0, output.backward_null[0], n), (1, output.forward_null[0], m)):
        of_word = [[float(p) for p, w in zip(null, words[side], strict=True) if w == word] for word in range(count)]
        nulls.append([sum(values) / len(values) for values in of_word])
    best = [max(float(scores[i, j]) for j in range(m)) for i in range(n)]
    best += [max(float(scores[i, j]) for i in range(n)) for j in range(m)]
    return {link: float(scores[link]) for link in links}, *nulls, sum(best) / len(best)


# ---- words ----


@pytest.mark.parametrize("method", SYMMETRIZATIONS)
def test_batches_equal_loops_over_the_definition(method, aligner):
    found_any = 0
    for pair, found in zip(PAIRS, aligner.align(PAIRS, symmetrize=method, threshold=0.15), strict=True):
        links, source_null, target_null, score = slow_alignment(aligner.model, aligner.tokenizer, *pair, method, 0.15)
        assert found.links == tuple(sorted(links))
        assert found.scores == pytest.approx([links[link] for link in found.links], abs=1e-5)
        assert found.source_null == pytest.approx(source_null, abs=1e-5)
        assert found.target_null == pytest.approx(target_null, abs=1e-5)
        assert found.score == pytest.approx(score, abs=1e-5)
        assert (found.symmetrization, found.threshold) == (method, 0.15)
        found_any += len(found.links)
    assert found_any > 3  # not two empty results that agree


def test_two_words_are_linked_if_any_of_their_subwords_are():
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "z": 1, "##y": 2, "##x": 3, "b": 4}, unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]")

    def weights(source, target):
        weights = torch.zeros(len(source), source.shape[1], target.shape[1])
        weights[:, 1, 2] = 0.6  # "##y" of the source, "##x" of the target
        weights[:, 0, 1] = 0.1  # "z", "##y"
        return weights

    aligner = WordAligner(FixedModel(weights, weights), tokenizer)
    (found,) = aligner.align([("zy b", "zyx b")])
    assert found.links == ((0, 0),)
    assert found.scores == pytest.approx((0.6,))
    assert found.source_null == pytest.approx(((0.9 + 0.4) / 2, 1.0))  # of "z" and "##y", of "b"
    assert found.target_null == pytest.approx(((1.0 + 0.9 + 0.4) / 3, 1.0))
    assert found.score == pytest.approx((0.6 + 0 + 0.6 + 0) / 4)


def test_the_models_own_threshold_and_symmetrization_are_the_defaults(tokenizer):
    model = tiny_mask_align(tokenizer, alignment_threshold=0.05, symmetrization="union")
    aligner = WordAligner(model, tokenizer)
    assert aligner.align(PAIRS) == aligner.align(PAIRS, threshold=0.05, symmetrize="union")
    assert aligner.align(PAIRS) != aligner.align(PAIRS, threshold=0.5)


def test_text_is_lower_cased_where_the_model_is(tokenizer):
    aligner = WordAligner(tiny_mask_align(tokenizer, lowercase=True), tokenizer)
    lower, upper = aligner.align([("the old house", "is a house"), ("THE OLD HOUSE", "IS A HOUSE")], threshold=0)
    assert replace(lower, source=upper.source, target=upper.target) == upper
    assert WordAligner(tiny_mask_align(tokenizer), tokenizer).align([("THE", "A")]) != aligner.align([("THE", "A")])
    # "İ".lower() is longer than "İ": the words behind it must not shift.
    (found,) = aligner.align([("İİİİ a İstanbul house", "a house")], threshold=0)
    (expected,) = aligner.align([("i̇i̇i̇i̇ a i̇stanbul house", "a house")], threshold=0)
    assert replace(found, source=expected.source) == expected
    assert len(found.source_null) == 4


# ---- tokenizers ----


def word_piece_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")


def test_a_word_without_tokens_has_no_link():
    tokenizer = word_piece_tokenizer()
    aligner = WordAligner(tiny_mask_align(tokenizer), tokenizer)
    with_it, without = aligner.align([("the \x07 house", "das Haus"), ("the house", "das Haus")], threshold=0.01)
    assert with_it.links == tuple((2 * i, j) for i, j in without.links)
    assert len(without.links) > 0
    assert with_it.source_null[1] == 1
    assert with_it.target_null == without.target_null
    (nothing,) = aligner.align([("\x07", "das Haus")])
    assert (nothing.links, nothing.source_null, nothing.target_null, nothing.score) == ((), (1,), (1, 1), 0)


def test_words_are_what_split_gives(aligner):
    odd, plain = aligner.align([("\tthe\u00a0old\u3000 house \n", "das  Haus"), ("the old house", "das Haus")])
    assert odd == plain
    assert len(odd.source_null) == 3


def test_words_may_come_as_lists(aligner):
    assert aligner.align([(source.split(), target.split()) for source, target in PAIRS]) == aligner.align(PAIRS)
    assert aligner.align(iter(PAIRS)) == aligner.align(PAIRS)


@pytest.mark.parametrize("word", ["old house", "", " a", "a\u3000b"])
def test_a_word_of_a_list_with_white_space_is_refused(word, aligner):
    with pytest.raises(ValueError, match=r"`pairs\[1\]\[0\]`.*white space"):
        aligner.align([("a", "b"), (["the", word], ["das"])])


def test_values_that_are_not_pairs_are_refused(aligner):
    with pytest.raises(ValueError, match=r"`pairs\[0\]`.*got 'ab'"):
        aligner.align(["ab"])


def test_a_slow_tokenizer_is_refused(tokenizer):
    slow = SimpleNamespace(is_fast=False)
    with pytest.raises(ValueError, match="got SimpleNamespace"):
        WordAligner(tiny_mask_align(tokenizer), slow)


# ---- batches ----


def test_a_single_pair_equals_the_pair_in_a_batch(aligner):
    alone = [aligner.align([pair], threshold=0.01)[0] for pair in PAIRS]
    for together in (
        aligner.align(PAIRS, threshold=0.01),
        aligner.align(PAIRS, threshold=0.01, batch_size=2),
        aligner.align(PAIRS, threshold=0.01, batch_tokens=1),
    ):
        for one, other in zip(alone, together, strict=True):
            assert one.links == other.links
            for field in ("scores", "source_null", "target_null"):
                assert getattr(one, field) == pytest.approx(getattr(other, field), abs=1e-6)
            assert one.score == pytest.approx(other.score, abs=1e-6)


def test_batches_do_not_exceed_their_size(tokenizer):
    model = FixedModel(*[lambda s, t: torch.zeros(len(s), s.shape[1], t.shape[1])] * 2)
    pairs = PAIRS * 4
    aligner = WordAligner(model, tokenizer)
    aligner.align(pairs, batch_size=3)
    assert max(len(source) for source, _ in model.batches) == 3
    assert sum(len(source) for source, _ in model.batches) == len(pairs)
    model.batches.clear()
    aligner.align(pairs, batch_tokens=100)
    sizes = [(len(source), source.shape[1] + target.shape[1]) for source, target in model.batches]
    assert all(pairs * tokens <= 100 or pairs == 1 for pairs, tokens in sizes)
    assert max(pairs for pairs, _ in sizes) > 1
    assert sum(pairs for pairs, _ in sizes) == len(pairs)


def test_no_pairs_and_empty_sides(aligner):
    assert aligner.align([]) == []
    both, source, target, full = aligner.align([("", " "), ("a b", ""), ([], ["das"]), ("a", "das")])
    assert both == WordAlignment((), (), (), (), (), (), None, "harmonic", 0.2)
    assert source == WordAlignment(("a", "b"), (), (), (), (1.0, 1.0), (), None, "harmonic", 0.2)
    assert target == WordAlignment((), ("das",), (), (), (), (1.0,), None, "harmonic", 0.2)
    assert full.score is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be >= 1, got 0"),
        ({"batch_tokens": 0}, "`batch_tokens` must be >= 1, got 0"),
        ({"threshold": 1.5}, "`threshold` must be from 0 to 1, got 1.5"),
        ({"symmetrize": "grow"}, r"`symmetrize` must be one of .*harmonic.*, got 'grow'"),
    ],
)
def test_settings_out_of_range_are_refused(options, message, aligner):
    with pytest.raises(ValueError, match=message):
        aligner.align(PAIRS, **options)


def test_weights_that_are_not_finite_are_an_error(tokenizer):
    broken = FixedModel(*[lambda s, t: torch.full((len(s), s.shape[1], t.shape[1]), math.nan)] * 2)
    with pytest.raises(ValueError, match=r"not finite in torch\.float32"):
        WordAligner(broken, tokenizer).align(PAIRS)


# ---- windows ----


def slow_crossing(forward, backward, row: int, column: int) -> float:
    """Weight of the links that cross a cut before a row and a column."""
    target, source = forward.shape
    return sum(
        math.sqrt(forward[t, s] * backward[s, t])
        for t in range(target)
        for s in range(source)
        if (t < row) != (s < column)
    )


def slow_end(forward, backward, source_starts, target_starts, left, drift=0.01) -> tuple[int, int]:
    """`end_of_window` by its definition, in loops."""
    target, source = forward.shape
    found: dict[bool, list] = {True: [], False: []}
    for row in range(target + 1):
        for column in range(source + 1):
            sides = [(column, source, left[0], source_starts), (row, target, left[1], target_starts)]
            going_on = [(place, size) for place, size, of_line, _ in sides if size < of_line]
            if any(place > max(1, size * 7 // 8) for place, size in going_on):
                continue
            if all(place < (size + 1) // 2 for place, size in going_on):
                continue
            if any(place == size == of_line for place, size, of_line, _ in sides):
                continue
            crossing = slow_crossing(forward, backward, row, column)
            off = abs(row * left[0] - column * left[1]) / max(left)
            whole = all(
                bool(starts[place]) if place < size else size == of_line for place, size, of_line, starts in sides
            )
            found[whole].append((crossing + drift * off, row, column))
    _, row, column = min(found[True] or found[False])
    return column, row


@pytest.mark.parametrize("left", [(30, 40), (12, 40), (30, 10)], ids=str)
def test_a_window_ends_where_the_fewest_links_cross(left):
    torch.manual_seed(4)
    source, target = (min(size, most) for size, most in zip(left, (14, 12), strict=True))
    for share in (1.0, 0.6, 0.0):
        forward, backward = (weights.double() for weights in block_weights((5, 8), (12, 9), leak=0.01))
        forward, backward = forward[:target, :source], backward[:source, :target]
        starts = [torch.rand(size) < share for size in (source, target)]
        found = end_of_window(forward, backward, *starts, left)
        assert found == slow_end(forward, backward, *starts, left)
        if share == 1 and left == (30, 40):
            assert found == (8, 5)  # where the first block ends


def test_a_sentence_at_the_limit_is_read_at_once_and_one_above_is_not(tokenizer):
    def same(source, target):
        return (source[:, :, None] == target[:, None, :]).float() / 4

    one_token = next(word for word in ("a", "is", "the") if len(tokenizer.tokenize(word)) == 1)
    model = FixedModel(same, same)
    aligner = WordAligner(model, tokenizer)
    aligner.align([(" ".join([one_token] * LIMIT), one_token)])
    assert [source.shape[1] for source, _ in model.batches] == [LIMIT]
    model.batches.clear()
    aligner.align([(" ".join([one_token] * (LIMIT + 1)), one_token)])
    assert [(source.shape[1], target.shape[1]) for source, target in model.batches] == [
        (LIMIT, 1),
        (LIMIT + 1 - LIMIT // 2, 1),
    ]


def identity_aligner(limit: int):
    """Links words that are equal, in both directions; the words are single tokens with ids of their own."""
    words = {word: n + 2 for n, word in enumerate([*(f"w{n}" for n in range(300)), *".!?"])}
    plain = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, **words}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]")

    def equal(source, target):
        return 0.9 * (source[:, :, None] == target[:, None, :]).float()

    return WordAligner(FixedModel(equal, equal, max_position_embeddings=limit), tokenizer)


@pytest.mark.parametrize("length", [16, 17, 23, 100])
def test_long_pairs_are_aligned_to_their_ends(length):
    aligner = identity_aligner(limit=16)
    source = [f"w{n}" for n in range(length)]
    target = [word for pair in zip(source[1::2], source[::2], strict=False) for word in pair]  # neighbours swapped
    for batch_tokens in (8192, 40):
        (found,) = aligner.align([(source, target)], batch_tokens=batch_tokens)
        assert set(found.links) == {(int(word[1:]), j) for j, word in enumerate(target)}
        assert found.scores == pytest.approx([0.9] * len(target))
        assert all(0.09 < p < 0.11 for p, word in zip(found.source_null, source, strict=True) if word in target)


# ---- lines that are cut ----


def block_weights(*blocks: tuple[int, int], leak: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (target, source) and (source, target) of parts of (target, source) tokens; `leak` of each crosses."""
    forward = torch.block_diag(*(torch.rand(t, s) for t, s in blocks)) + leak * torch.rand(
        sum(t for t, _ in blocks), sum(s for _, s in blocks)
    )
    return forward / forward.sum(dim=1, keepdim=True), (forward / forward.sum(dim=0)).mT


def slow_cuts(forward, backward, source_starts, target_starts, least=8, most=0.5) -> list[tuple[slice, slice]]:
    """`cut_pair` by its definition, in loops."""
    target, source = forward.shape
    parts, i, j = [], 0, 0
    for row in range(target):
        best = None
        for column in range(source):
            sizes = (row - j, target - row, column - i, source - column)
            if min(sizes) < least or not (target_starts[row] and source_starts[column]):
                continue
            crossing = slow_crossing(forward, backward, row, column)
            if crossing < most and (best is None or crossing < best[0] - 1e-12):
                best = crossing, column
        if best is not None:
            parts.append((slice(i, best[1]), slice(j, row)))
            i, j = best[1], row
    return [*parts, (slice(i, source), slice(j, target))]


@pytest.mark.parametrize(
    ("blocks", "leak", "parts"),
    [(((11, 9), (12, 14)), 0, 2), (((9, 10), (8, 9), (12, 10)), 2e-3, 3), (((20, 20),), 0, 1), (((7, 30),), 0, 1)],
)
def test_a_line_is_cut_where_nothing_crosses(blocks, leak, parts):
    torch.manual_seed(3)
    forward, backward = (weights.double() for weights in block_weights(*blocks, leak=leak))
    target, source = forward.shape
    everywhere = [torch.ones(length, dtype=torch.bool) for length in (source, target)]
    found = cut_pair(forward, backward, *everywhere)
    assert found == slow_cuts(forward, backward, *everywhere)
    assert len(found) == parts
    ends = [(j.stop, i.stop) for i, j in found]
    assert ends == [(sum(t for t, _ in blocks[: n + 1]), sum(s for _, s in blocks[: n + 1])) for n in range(parts)]
    some = [torch.rand(length) < 0.5 for length in (source, target)]
    assert cut_pair(forward, backward, *some) == slow_cuts(forward, backward, *some)


def test_the_parts_of_a_long_line_are_read_separately():
    aligner = identity_aligner(limit=200)
    sentences = [[f"w{20 * n + place}" for place in range(20)] for n in range(5)]
    targets = [sentence[::-1] for sentence in sentences]
    pairs = list(zip(sentences, targets, strict=True))
    line = [list(chain(*side)) for side in (sentences, targets)]
    alone = aligner.align(pairs)
    aligner.model.batches.clear()
    short, joined = aligner.align([pairs[0], line])
    read = [tuple(source.shape) for source, _ in aligner.model.batches]
    assert (5, 20) in read  # nothing inside a reversed sentence can be cut
    assert short.links == alone[0].links
    expected = [(i + 20 * n, j + 20 * n) for n, found in enumerate(alone) for i, j in found.links]
    assert list(joined.links) == expected
    aligner.model.batches.clear()
    aligner.source.longest_uncut = None
    assert list(aligner.align([line])[0].links) == expected
    assert [tuple(source.shape) for source, _ in aligner.model.batches] == [(1, 100)]


@pytest.mark.parametrize("ends", ["", ".!?"])
def test_a_line_of_several_sentences_is_cut_only_between_them(ends):
    aligner = identity_aligner(limit=200)
    sentences = [[f"w{20 * n + place}" for place in range(20)] for n in range(3)]
    targets = [sentence[::-1] for sentence in sentences]
    for end, *sides in zip(ends, sentences, targets, strict=False):
        for side in sides:
            side.append(end)
    line = [list(chain(*side)) for side in (sentences, targets)]
    (found,) = aligner.align([line])
    assert set(found.links) == {(line[0].index(word), j) for j, word in enumerate(line[1])}
    read = [tuple(source.shape) for source, _ in aligner.model.batches]
    assert read == ([(1, 63), (3, 21)] if ends else [(1, 60)])


def test_a_line_of_more_tokens_than_the_model_has_positions_is_cut_too():
    aligner = identity_aligner(limit=50)
    sentences = [[f"w{40 * n + place}" for place in range(40)] for n in range(3)]
    (found,) = aligner.align([(list(chain(*sentences)), list(chain(*(side[::-1] for side in sentences))))])
    assert (3, 40) in [tuple(source.shape) for source, _ in aligner.model.batches]
    assert set(found.links) == {(40 * n + i, 40 * n + 39 - i) for n in range(3) for i in range(40)}


# ---- results ----


def test_results_as_text_and_as_plain_data():
    words = ("the", "old", "house"), ("le", "vieux")
    nulls = (0.0, 1.0, 0.5), (0.1, 0.2)
    alignment = WordAlignment(*words, ((0, 0), (2, 1)), (0.93, 0.25001), *nulls, 0.5, "harmonic", 0.2)
    assert alignment.pharaoh() == "0-0 2-1"
    assert alignment.pharaoh(scores=True) == "0-0:0.9300 2-1:0.2500"
    plain = json.loads(json.dumps(alignment.to_dict()))
    assert plain["links"] == [[0, 0], [2, 1]]
    assert (plain["source"], plain["target"]) == (["the", "old", "house"], ["le", "vieux"])
    names = ["links", "scores", "source_null", "target_null", "score", "symmetrization", "threshold", "calibrated"]
    assert list(plain)[2:] == names
    assert plain["calibrated"] is False
    with pytest.raises(AttributeError):
        alignment.score = 1.0


# ---- pictures ----


def test_a_notebook_shows_the_picture_of_a_pair(aligner):
    (alignment,) = aligner.align([(" ".join(HOSTILE), "das alte Haus")], threshold=0)
    (picture,) = pictures_of(alignment._repr_html_())
    assert tuple(picture.links) == alignment.links
    assert len(picture.links) > 3
    assert (picture.groups[SOURCE], picture.groups[TARGET]) == (HOSTILE, ["das", "alte", "Haus"])
    assert re.fullmatch(r"score of the pair \.\d\d; links: harmonic, above 0; ∅: no partner", picture.caption)


def test_pairs_with_an_empty_side_have_a_picture(aligner):
    for alignment in aligner.align([("", ""), ("a", "")]):
        (picture,) = pictures_of(alignment._repr_html_())
        assert picture.links == []
        assert picture.caption == "links: harmonic, above 0.2; ∅: no partner"


# ---- sources ----


class Halved(MaskAlignSource):
    """Weights half as large."""

    def directions(self, pairs, cells=None):
        return tuple(tensor / 2 for tensor in super().directions(pairs, cells))


def test_another_source_may_take_the_place_of_the_models_own(tokenizer):
    aligner = WordAligner(tiny_mask_align(tokenizer), tokenizer)
    own = aligner.align(PAIRS, threshold=0.1)
    aligner.source = Halved(aligner.model, tokenizer)
    halved = aligner.align(PAIRS, threshold=0.05)
    assert any(alignment.links for alignment in own)
    for one, other in zip(own, halved, strict=True):
        assert one.links == other.links
        assert [score / 2 for score in one.scores] == pytest.approx(other.scores)


def test_options_are_checked_without_aligning(aligner, seq2seq):
    aligner.check(threshold=0.5, symmetrize="union")
    with pytest.raises(ValueError, match=r"`threshold`.*0.*1.*got 2"):
        aligner.check(threshold=2)
    with pytest.raises(ValueError, match=r"`layer`.*word aligner"):
        aligner.source.choose(layer=1)
    other = WordAligner(seq2seq.model, aligner.tokenizer)
    other.check(threshold=0.5, symmetrize="forward")
    other.source.choose(shift=False)
    other.source.choose(layer=1, heads=(0,))
    assert other.settings == Seq2SeqAttention(1, (0,), shift=False)
    for changes, message in (
        ({"layer": 2}, "`layer` must be from -2 to 1"),
        ({"layer": 1, "heads": (5,)}, "`heads` must be from 0 to 1"),
        ({"heads": None, "weights": "contribution"}, "`weights='contribution'` needs a model or an active adapter"),
    ):
        other.source.choose(**changes)
        with pytest.raises(ValueError, match=message):
            other.check()


# ---- checkpoints ----


def test_a_saved_mask_align_model_is_loaded(aligner, tmp_path):
    aligner.model.save_pretrained(tmp_path)
    aligner.tokenizer.save_pretrained(tmp_path)
    for name in (tmp_path, str(tmp_path)):
        loaded = WordAligner.from_pretrained(name, device="cpu")
        assert loaded.align(PAIRS) == aligner.align(PAIRS)
    shown = f"WordAligner(MaskAlignModel, name='{tmp_path}', symmetrize='harmonic', threshold=0.2, device='cpu')"
    assert repr(loaded) == shown
    half = WordAligner.from_pretrained(tmp_path, device="cpu", dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16
    for one, other in zip(half.align(PAIRS), aligner.align(PAIRS), strict=True):
        assert one.source_null == pytest.approx(other.source_null, abs=0.1)
    with pytest.raises(ValueError, match=r"`settings`.*encoder-decoder"):
        WordAligner.from_pretrained(tmp_path, settings=Seq2SeqAttention(0))


@pytest.fixture(scope="module")
def seq2seq(tmp_path_factory, tokenizer):
    """A folder with a tiny random stock Marian model, and the model."""
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"decoder_start_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.eos_token_id}
    model = tiny_stock_model("marian", torch.float32, vocab_size=len(tokenizer), **special)
    folder = tmp_path_factory.mktemp("seq2seq")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return SimpleNamespace(folder=folder, model=model)


def test_an_encoder_decoder_links_each_target_word_to_its_best_source_word(seq2seq, tokenizer):
    settings = Seq2SeqAttention(1, (0,), shift=False)
    aligner = WordAligner.from_pretrained(seq2seq.folder, device="cpu", settings=settings)
    pairs = [pair for pair in PAIRS if len(" ".join(pair)) < 40] + [("", "das")]
    sources, targets = zip(*pairs, strict=True)
    expected = seq2seq_weights(seq2seq.model, tokenizer, sources, targets, settings)
    for found, weights in zip(aligner.align(pairs), expected, strict=True):
        assert found.links == argmax_links(weights)
        assert found.scores == pytest.approx([float(weights[j, i]) for i, j in found.links], abs=1e-6)
        assert (found.symmetrization, found.threshold) == ("forward", None)
        assert found.source_null is found.target_null is None
    assert aligner.align(pairs)[-1].score is None
    for found, weights in zip(aligner.align(pairs, threshold=0.3), expected, strict=True):
        assert found.links == tuple(sorted((i, j) for j, i in (weights > 0.3).nonzero().tolist()))
        assert found.threshold == 0.3


def test_settings_saved_with_an_encoder_decoder_are_used(seq2seq, tmp_path, tokenizer):
    assert WordAligner.from_pretrained(seq2seq.folder, device="cpu").settings is None
    seq2seq.model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    Seq2SeqAttention(1, (1,), shift=True).save(tmp_path)
    loaded = WordAligner.from_pretrained(tmp_path, device="cpu")
    assert loaded.settings == Seq2SeqAttention(1, (1,), shift=True)
    assert repr(loaded.settings) in repr(loaded)  # a reader sees which attention it is
    (alignment,) = loaded.align(PAIRS[:1])
    assert "links: forward, the best source word of each; ∅: no partner" in alignment._repr_html_()


def test_an_encoder_decoder_has_one_direction(seq2seq):
    aligner = WordAligner.from_pretrained(seq2seq.folder, device="cpu")
    assert aligner.align(PAIRS[:2], symmetrize="forward") == aligner.align(PAIRS[:2])
    with pytest.raises(ValueError, match=r"'forward'.*got 'harmonic'"):
        aligner.align(PAIRS[:2], symmetrize="harmonic")


def test_a_model_of_another_kind_is_refused(tmp_path):
    GPT2Config(vocab_size=10, bos_token_id=1, eos_token_id=2).save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "gpt2"
    with pytest.raises(ValueError, match=r"'gpt2'.*an encoder-decoder"):
        WordAligner.from_pretrained(tmp_path)
