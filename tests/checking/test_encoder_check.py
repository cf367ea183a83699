"""Check with a pretrained encoder: features against loops, combined judges, and languages without coverage."""

import copy
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from seq2seq_helpers import SOURCES, TARGETS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from hf_attncal import check
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.checking import encoder_check
from hf_attncal.checking.check_model import CheckModel, Judged, combined_judgement
from hf_attncal.checking.check_self_test import plant_and_check
from hf_attncal.checking.checker import Checker
from hf_attncal.checking.encoder_check import (
    FILE,
    PARTS_OF_VERDICT,
    EncoderJudge,
    encoder_kind,
    levels_of,
    saved_encoder_check,
    tail,
)
from hf_attncal.checking.encoder_evidence import (
    TEMPERATURE,
    EvidenceReader,
    WordStates,
    text_statistics,
    word_features,
)
from hf_attncal.checking.logistic import Network, log_odds, sigmoid
from hf_attncal.checking.verdicts import NOT_KNOWN, VERDICTS
from hf_attncal.commands import main
from hf_attncal.data.segmentation import segment
from hf_attncal.data.words import is_punctuation
from hf_attncal.io.errors import CommandError

SIZE = 16
PAIRS = list(zip(SOURCES, TARGETS, strict=True))


@pytest.fixture(scope="module")
def made():
    """A random BERT of three layers with a unigram tokenizer with letters and a few words."""
    letters = sorted({character for pair in PAIRS for text in pair for character in text} | set("我们走吧。"))
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("我们", -4.0)]
    pieces += [(letter, -5.0) for letter in letters if letter != " "]
    backend = Tokenizer(models.Unigram(pieces, unk_id=1))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>")
    torch.manual_seed(3)
    sizes = {"hidden_size": SIZE, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    config = BertConfig(**sizes, vocab_size=len(tokenizer), pad_token_id=0, max_position_embeddings=70)
    return BertModel(config).eval(), tokenizer


@pytest.fixture
def encoder(made):
    """Return a copy, without the layers above the one that is read."""
    return copy.deepcopy(made[0]), made[1]


@pytest.fixture
def judge(made, monkeypatch):
    """Make judges for the encoder, as if the file of the package had been made for it."""
    model, network, _, _ = saved_encoder_check()
    encoder = copy.deepcopy(made[0]), made[1]
    kind = encoder_kind(EncoderPrior(*encoder))
    monkeypatch.setattr(
        encoder_check, "saved_encoder_check", lambda: (model, network, np.zeros(SIZE, np.float32), kind)
    )
    return lambda: EncoderJudge(EncoderPrior(*encoder))


# Names of the columns of `word_features`.
AROUND = (-2, -1, 1, 2)
WORD_FEATURES = (
    *("best", "best for this text", "before the next", "together", "preferred", "claimed", "moved", "near"),
    *("jump before", "jump after"),
    *(f"{name} {place:+d}" for name in ("best", "together") for place in AROUND),
    *("around", "surprisal", "tokens", "punctuation", "number", "capital", "letters", "same", "with punctuation"),
    *("surprisal of the partner", "surprisal -1", "surprisal +1", "side", "other side", "words", "other words"),
    *("longer", "best of the text", "spread of the text", "target"),
)


# ---- the file ----


def test_the_file_of_the_package_is_small_and_whole():
    values = json.loads(FILE.read_text(encoding="utf-8"))
    assert FILE.stat().st_size < 200_000
    assert all("pairs: " in credit for credit in values["text"].values())
    model, network, common, kind = saved_encoder_check()
    assert network.scale.shape == (2, len(WORD_FEATURES))
    assert network(np.zeros((4, len(WORD_FEATURES)))).shape == (4,)
    assert common.shape == (kind["hidden_size"],)
    assert 0 < model.alarm < 1
    assert set(model.rules)
    assert model.facts.field == "best"


def test_another_encoder_is_refused(encoder):
    with pytest.raises(ValueError, match=r"must be intfloat/multilingual-e5-small.*hidden_size 16"):
        EncoderJudge(EncoderPrior(*encoder))


def test_an_encoder_that_is_adapted_to_aligning_is_refused(encoder):
    adapted = EncoderPrior(*encoder)
    adapted.adapted = True
    with pytest.raises(ValueError, match="load it with `adapted=False`"):
        EncoderJudge(adapted)


# ---- evidence ----


def random_read(words, generator):
    return WordStates(generator.normal(size=(words, SIZE)), generator.uniform(1, 20, words), np.ones(words, dtype=int))


def test_features_are_those_of_loops():
    generator = np.random.default_rng(0)
    texts = [
        ("The cat , it sat 3 times .", "Die Katze saß 3 Mal dort ."),
        ("He left .", "Er ging fort ."),
        ("A", "Ein"),
    ]
    met = []
    for pair in texts:
        sides = tuple(map(segment, pair))
        met.append((sides, tuple(random_read(len(side.words), generator) for side in sides)))
    usual = text_statistics(met, np.zeros(SIZE))
    for sides, read in met:
        cosines = usual.cosines(*(one.states for one in read))
        means = [
            sum(one.states.sum(axis=0) for one in side) / (10 + sum(len(one.states) for one in side))
            for side in zip(*(read for _, read in met), strict=True)
        ]
        together, *found = word_features(cosines, sides, read, usual)
        number = [len(side.words) for side in sides]
        for i in range(number[0]):
            for j in range(number[1]):
                h, g = read[0].states[i] - means[0], read[1].states[j] - means[1]
                cosine = h @ g / math.sqrt(h @ h) / math.sqrt(g @ g)
                assert cosines[i, j] == pytest.approx(cosine)
                f = math.exp(cosine / TEMPERATURE) / sum(
                    math.exp(cosines[i, k] / TEMPERATURE) for k in range(number[1])
                )
                b = math.exp(cosine / TEMPERATURE) / sum(
                    math.exp(cosines[k, j] / TEMPERATURE) for k in range(number[0])
                )
                assert together[i, j] == pytest.approx(2 * f * b / (f + b))
        for side, of in enumerate((cosines, cosines.T)):
            for place in range(number[side]):
                values = dict(zip(WORD_FEATURES, found[side][place], strict=True))
                partner = max(range(number[1 - side]), key=lambda other: of[place, other])
                assert values["best"] == pytest.approx(of[place, partner])
                others = [of[place, k] for k in range(number[1 - side]) if k != partner] or [-1]
                assert values["before the next"] == pytest.approx(of[place, partner] - max(others))
                assert values["preferred"] == pytest.approx(max(of[:, partner]) - of[place, partner])
                if place + 1 < number[side]:
                    after = max(range(number[1 - side]), key=lambda other: of[place + 1, other])
                    assert values["jump after"] == min(abs(after - partner - 1), 6)
                    assert values["best +1"] == pytest.approx(
                        (max(of[place + 1]) - usual.best[side][0]) / usual.best[side][1]
                    )
                else:
                    assert values["jump after"] == 6
                    assert values["best +1"] == 0
                assert values["target"] == side


def test_the_network_is_that_of_loops():
    generator = np.random.default_rng(1)
    layers = generator.normal(size=(4, 2)), generator.normal(size=(3, 1))
    network = Network(np.array([[1.0, 0.0, -1.0], [2.0, 1.0, 0.5]]), layers)
    features = generator.normal(size=(5, 3))
    for row, value in zip(features, network(features), strict=True):
        scaled = [(row[n] - network.scale[0, n]) / network.scale[1, n] for n in range(3)]
        scaled = [max(-5, min(5, one)) for one in scaled]
        hidden = [math.tanh(sum(scaled[n] * layers[0][n, k] for n in range(3)) + layers[0][3, k]) for k in range(2)]
        assert value == pytest.approx(sum(hidden[k] * layers[1][k, 0] for k in range(2)) + layers[1][2, 0])


def test_words_have_the_means_of_their_tokens(encoder):
    """A Chinese word inside a longer token has its state; each different text is read once."""
    evidence_reader = EvidenceReader(EncoderPrior(*encoder), None, np.zeros(SIZE, np.float32))
    texts = [segment("the cat"), segment("吧我们走。"), segment(""), segment("the cat")]
    found = evidence_reader.states_of(texts)
    reader, layer = evidence_reader.encoder.reader, evidence_reader.encoder.layer
    ids = reader.tokenizer("the cat", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        states = reader.states([np.array(ids)])[layer][0].float().numpy()
    pieces = reader.tokenizer.convert_ids_to_tokens(ids)
    assert pieces == ["▁the", "▁", "c", "a", "t"]  # the space is of no word
    assert found[0].tokens.tolist() == [1, 3]
    np.testing.assert_allclose(found[0].states[0], states[0], atol=1e-5)
    np.testing.assert_allclose(found[0].states[1], states[2:].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(found[0].surprisal, [3.0, 15.0], atol=1e-6)
    assert texts[1].words[1:3] == ("我", "们")
    np.testing.assert_array_equal(found[1].states[1], found[1].states[2])
    np.testing.assert_allclose(found[1].surprisal[1:3], [2.0, 2.0], atol=1e-6)
    assert found[2].states.shape == (0, SIZE)
    assert found[3] is found[0]


# ---- judges ----


def test_an_encoder_alone_judges_a_text(judge, monkeypatch):
    monkeypatch.setattr(EncoderJudge, "covers_languages", True)
    verdicts = Checker(None, encoder=judge()).check([*PAIRS, ("", "x"), ("a", "")])
    assert len(verdicts) == len(PAIRS) + 2
    for verdict, (source, target) in zip(verdicts, PAIRS, strict=False):
        assert (len(verdict.source_words), len(verdict.target_words)) == (
            len(segment(source).words),
            len(segment(target).words),
        )
        assert all(0 <= getattr(verdict, name) <= 1 for name in ("wrong", *VERDICTS))
        assert bool(verdict.flagged) == (verdict.wrong > saved_encoder_check()[0].alarm)
    assert verdicts[-2].names == ("empty source",)
    assert verdicts[-1].names == ("empty target",)


def test_parts_are_added_as_far_as_they_are_rare(judge):
    """Punctuation weighs a tenth of a word, twenty usual words are added to a line, and long lines count more."""
    of_text = judge()
    lines = of_text.evidence_reader.read([tuple(map(segment, pair)) for pair in PAIRS])
    model = of_text.model
    found, before = model.judge(lines), CheckModel.judge(model, lines)
    parts = {name: log_odds(values) for name, values in before.causes.items()}
    means = []
    for line in lines:
        means.append([])
        for side, words in enumerate((line.source.words, line.target.words)):
            weights = [0.1 if is_punctuation(word) else 1.0 for word in words]
            odds = line.against[side].tolist()
            total = sum(weight / (1 + math.exp(-value)) for weight, value in zip(weights, odds, strict=True))
            mean = (total + 20 * 0.02) / (sum(weights) + 20)
            long = 2 * sum(weights) ** 2 / (sum(weights) ** 2 + 15**2)
            means[-1].append(long * (math.log(mean / (1 - mean)) - math.log(0.02 / 0.98)))
    means = np.array(means)
    assert means.std() > 0.01
    for side, cause in enumerate(("omission", "addition")):
        np.testing.assert_allclose(log_odds(found.causes[cause]) - parts[cause], means[:, side])
    parts["source mean"], parts["target mean"] = means.T
    wrong = []
    for line in range(len(lines)):
        total = 0.0
        for part, bar, weight in PARTS_OF_VERDICT:
            value, levels = parts[part][line], model.tails[part].tolist()
            if value >= levels[-1]:
                rare = 5 + (value - levels[-1]) / max((levels[19] - levels[9]) / 2.5, 1e-3)
            elif value <= levels[0]:
                rare = 0.25
            else:
                k = max(k for k in range(20) if levels[k] <= value)
                rare = 0.25 * (k + 1 + (value - levels[k]) / (levels[k + 1] - levels[k]))
            total += weight * max(0.0, rare - bar)
        wrong.append(model.added[0] + model.added[1] * total)
    np.testing.assert_allclose(model.scores(found.verdict_features), wrong, atol=1e-5)
    assert np.std(wrong) > 0.01


def test_levels_are_those_of_lines_that_weigh_alike_or_not():
    values, weights = np.arange(1000.0), np.ones(1000)
    levels = levels_of(values, weights)
    shares = np.exp(-0.25 * np.arange(1, 21))
    np.testing.assert_allclose([(values >= level).mean() for level in levels], shares, atol=0.002)
    np.testing.assert_allclose(tail(levels, levels), 0.25 * np.arange(1, 21))
    assert tail(levels[-1:] + (levels[19] - levels[9]), levels) == pytest.approx(7.5)
    twice = levels_of(np.concatenate([values, values[500:]]), np.concatenate([weights, weights[500:]]))
    np.testing.assert_allclose(twice, levels_of(values, np.where(values < 500, 1.0, 2.0)), atol=1)
    assert twice[0] > levels[0]


def test_languages_that_are_not_known_get_no_verdict(judge, caplog):
    """Random states have no partners: one message, and a name on every line."""
    checker = Checker(None, encoder=judge())
    verdicts = checker.check(PAIRS * 3)
    assert not checker.encoder.covers_languages
    assert caplog.text.count("does not cover one of the languages") == 1
    assert all(verdict.names == (NOT_KNOWN,) and not verdict.flagged and not verdict.wrong for verdict in verdicts)


def test_an_encoder_checks_documents_alone(judge, encoder, tmp_path):
    """Of four entries its coverage is not known; of all of them it is."""
    entries = [f'msgid "{a}"\nmsgstr "{b}"\n' for a, b in PAIRS * 3]
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    judge()
    few, many = tmp_path / "few.po", tmp_path / "many.po"
    few.write_text("\n".join([head, *entries[:4]]))
    many.write_text("\n".join([head, *entries]))
    result = check(None, str(few), encoder=EncoderPrior(*encoder))
    assert [verdict.source for verdict in result.verdicts] == [a for a, _ in PAIRS[:4]]
    assert all(NOT_KNOWN not in verdict.names for verdict in result.verdicts)
    with pytest.raises(CommandError, match=r"No segment gets a verdict: .*does not cover one of the languages"):
        check(None, str(many), encoder=EncoderPrior(*encoder))


def test_a_text_with_every_line_twice_is_as_well_known():
    generator = np.random.default_rng(2)
    met = []
    for number in range(20):
        sides = segment(f"a b c d {chr(97 + number)}x"), segment(f"k l m n {chr(97 + number)}y")
        states = generator.normal(size=(5, SIZE))
        noise = generator.normal(size=(5, SIZE))
        met.append(
            (
                sides,
                (WordStates(states, np.ones(5), np.ones(5)), WordStates(states + 0.3 * noise, np.ones(5), np.ones(5))),
            )
        )
    once, twice = (text_statistics(some, np.zeros(SIZE)).known for some in (met, met * 2))
    assert once > 2
    assert twice == pytest.approx(once, rel=0.1)


def test_too_few_lines_tell_nothing_of_the_languages(judge, caplog):
    checker = Checker(None, encoder=judge())
    checker.check(PAIRS[:1])
    assert checker.encoder.covers_languages
    assert "too few lines to test" in checker.encoder.coverage_message()
    assert caplog.text.count("too few lines to test") == 1
    checker.check(PAIRS * 3)
    assert caplog.text.count("does not cover one of the languages") == 1


def test_judges_are_joined_by_the_means_of_their_log_odds():
    model, _network, _, _ = saved_encoder_check()
    found = []
    for value, alarm in ((0.2, 0.5), (0.9, 0.7)):
        one = replace(model, alarm=alarm)
        one.wrong = lambda features, value=value: np.full(2, value)
        found.append(Judged(one, encoder_check.Judgement(
            {"addition": np.array([value, value])}, [(np.array([value]), np.array([0.5, value]))] * 2,
            [(np.array([0]), np.array([0, 1]))] * 2, [{}, {}], [(), ("wrong name",)],
            *[np.zeros((2, 1))] * 2,
        ), np.array([True, bool(found)])))  # fmt: skip
    pairs = combined_judgement(found, [(segment("a"), segment("b c"))] * 2, 0.6)
    causes = {name: [pair.causes[name] for pair in pairs] for name in pairs[0].causes}
    words, changes = [pair.words for pair in pairs], [pair.changes for pair in pairs]

    def odds(value):
        return math.log(value / (1 - value))

    both = [odds(value) - odds(alarm) + odds(0.6) for value, alarm in ((0.2, 0.5), (0.9, 0.7))]
    np.testing.assert_allclose(log_odds(causes["wrong"]), [sum(both) / 2, both[1]])
    np.testing.assert_allclose(log_odds(causes["addition"]), [(odds(0.2) + odds(0.9)) / 2, odds(0.9)])
    np.testing.assert_allclose(words[0][0][0], sigmoid(np.array([(odds(0.2) + odds(0.9)) / 2])))
    np.testing.assert_allclose(words[1][0][0], [0.9])
    assert words[0][1][1].tolist() == [0, 1]
    assert changes == [(), ("wrong name",)]


def test_a_self_test_needs_a_known_language(judge):
    with pytest.raises(ValueError, match="language is not known"):
        plant_and_check(Checker(None, encoder=judge()), PAIRS * 3)


def test_a_self_test_leaves_the_checker_as_it_was(judge):
    """Statistics of its pairs do not affect the text that is checked next."""
    checker, fresh = Checker(None, encoder=judge()), Checker(None, encoder=judge())
    checker.check(PAIRS[:2])
    before = vars(checker.encoder.evidence_reader).copy()
    met = list(before["_sample"])
    assert plant_and_check(checker, PAIRS[:4]).kinds
    assert all(vars(checker.encoder.evidence_reader)[name] is value for name, value in before.items())
    assert checker.encoder.evidence_reader.learns
    assert checker.encoder.evidence_reader._sample == met
    fresh.check(PAIRS[:2])
    for one, other in zip(checker.check(PAIRS), fresh.check(PAIRS), strict=True):
        assert one == other


# ---- the command ----


def test_the_command_takes_an_encoder_alone(encoder, judge, tmp_path, capsys):
    model, tokenizer = encoder
    model.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    for name, side in (("a", SOURCES), ("b", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side * 3), encoding="utf-8")
    files = ["--source", str(tmp_path / "a"), "--target", str(tmp_path / "b")]
    assert main(["check", "--encoder", str(tmp_path / "encoder"), *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 * len(SOURCES) + 1
    assert lines[1] == "\t".join(["1", *["nan"] * (1 + len(VERDICTS)), "-", NOT_KNOWN, *PAIRS[0]])
    assert main(["check", "--encoder", str(tmp_path / "encoder"), *files, "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["wrong"] is None
    assert first["names"] == [NOT_KNOWN]
    for form in ("kept", "summary", "marked", "html"):  # where such lines would pass for clean ones
        assert main(["check", "--encoder", str(tmp_path / "encoder"), *files, "--format", form]) == 1
        told = capsys.readouterr()
        assert not told.out
        assert "does not cover one of the languages" in told.err
        assert "Give MODEL" in told.err
    for job, *asked in (["test"], ["compare", "--other", files[3]]):
        assert main(["check", job, "--encoder", str(tmp_path / "encoder"), *files, *asked]) == 1
        assert re.search("language is not known|does not cover one of the languages", capsys.readouterr().err)
    found = check(source=SOURCES, target=TARGETS, encoder=EncoderPrior(*encoder), format="summary")
    assert "encoder" in found.signature
    assert "aligner" not in found.signature


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "MODEL or --encoder must be given"),
        ({"encoder": "no/such/name/here"}, "no/such/name/here"),
        ({"source": "a.po", "target": None}, "a.po"),
    ],
)
def test_what_cannot_be_checked_with_is_told(given, told):
    with pytest.raises(CommandError, match=told):
        check(**{"source": ["a b c"], "target": ["a b c"]} | given)
