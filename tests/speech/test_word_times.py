"""Word times of tones, learned by an observer of a tiny Whisper."""

import random

import numpy as np
import pytest
import torch
from peft import PeftModel
from speech_helpers import SECONDS, spoken_tones, tiny_whisper, tone

from hf_attncal.adapters import save_adapter
from hf_attncal.inference.head_search import HeadPlace
from hf_attncal.speech.learning import learn_word_times, planted_evidence, prepared, token_links
from hf_attncal.speech.observed import Listener, Observation, Unspoken, path_scores
from hf_attncal.speech.sound import RATE, Word, cut
from hf_attncal.speech.transcribing import _merged, assigned, unmatched, word_times


@pytest.fixture(scope="module")
def learned():
    """Return the model with its observer, its processor, and the learned probability."""
    model, processor = tiny_whisper()
    windows = spoken_tones(1, 24)
    features = processor.feature_extractor(windows[0].audio, sampling_rate=RATE, return_tensors="pt").input_features
    before = model.generate(features)
    options = {"places": [HeadPlace(layer=0, head=1, shift=True)], "epochs": 25, "learning_rate": 1e-2, "seed": 2}
    adapted, unspoken, lesson = learn_word_times(model, processor, windows, spoken_tones(2, 6), **options)
    assert torch.equal(adapted.get_base_model().generate(features), before)
    return adapted, processor, unspoken, lesson


def test_times_of_a_given_text(learned):
    model, processor, unspoken, lesson = learned
    assert lesson.agreement > 0.8 > lesson.before
    errors = []
    for window in spoken_tones(3, 6):
        text = " ".join(word.text for word in window.words)
        words = [w for w in word_times(model, processor, window.audio, text, unspoken=unspoken) if w.kind == "said"]
        assert [word.text for word in words] == text.split()
        errors += [abs(a.start - b.start) for a, b in zip(words, window.words, strict=True)]
        errors += [abs(a.end - b.end) for a, b in zip(words, window.words, strict=True)]
    assert np.median(errors) < 0.03
    assert np.mean(np.array(errors) < 0.06) > 0.8


def test_planted_words_are_less_probable(learned):
    model, processor, unspoken, _ = learned
    listener = Listener(model, processor)
    windows = list(prepared(listener, spoken_tones(4, 8), "windows", random.Random(1)))
    for clean, text in (window.texts for window in windows):
        assert [pair for pair in text if pair[1] is not None] == clean
        assert 3 * 2 <= sum(said is None for _, said in text) <= 3 * 5
    long = [window._replace(words=window.words * 8) for window in spoken_tones(4, 2)]
    window, _ = prepared(listener, long, "windows", random.Random(1), learned=True)
    assert [6 * 2 <= sum(said is None for _, said in text) <= 6 * 5 for text in window.texts] == [True, True]
    evidence, planted = planted_evidence(listener, windows)
    probabilities = unspoken.probabilities(evidence)
    assert 0 < planted.sum() < len(planted)
    assert probabilities[planted].mean() > probabilities[~planted].mean() + 0.1


def test_the_transcript_is_the_models_own(learned):
    model, processor, unspoken, _ = learned
    audio = np.concatenate([tone("low", 0.8), np.zeros(RATE // 2, np.float32), tone("top", 2.5)])
    words = word_times(model, processor, audio, unspoken=unspoken)
    listener = Listener(model, processor)
    heard = [word for _, samples in cut(audio, SECONDS) for word in listener.transcribe(listener.encode(samples))]
    assert [word.text for word in words if word.kind != "unwritten"] == heard
    assert all(0 <= word.start <= word.end <= len(audio) / RATE for word in words)


def test_saved_and_loaded(learned, tmp_path):
    model, processor, unspoken, _ = learned
    save_adapter(model, tmp_path)
    unspoken.save(tmp_path)
    loaded = PeftModel.from_pretrained(tiny_whisper()[0], tmp_path)
    window = spoken_tones(5, 1)[0]
    text = " ".join(word.text for word in window.words)
    found = [word_times(m, processor, window.audio, text, unspoken=u) for m, u in (
        (model, unspoken), (loaded, Unspoken.load(tmp_path)),
    )]  # fmt: skip
    assert found[0] == found[1]
    path = tmp_path / "times.json"
    path.write_text(path.read_text().replace('"alarm": ', '"alarm": 1'))
    with pytest.raises(ValueError, match="has been changed"):
        Unspoken.load(tmp_path)


# ---- the parts ----


def test_links_cover_words_and_pauses():
    model, processor = tiny_whisper()
    listener = Listener(model, processor, observing=False)
    text = [("low", Word("low", 0.1, 0.2)), ("top", None), ("mid", Word("mid", 0.2, 0.3))]
    ids, links = token_links(listener, text, 0.4, 100)
    assert len(ids) == 3
    expected = torch.zeros(4, 100)
    expected[1, 5:10] = expected[3, 10:15] = expected[0, :5] = expected[0, 15:20] = 1
    assert torch.equal(links, expected)


def test_scores_are_those_of_a_loop():
    rng = np.random.default_rng(1)
    weights = rng.random((3, 5))
    rows = [row / row.sum() for row in weights]
    sizes = [np.exp(-sum(a * np.log(a + 1e-9) for a in row)) for row in rows]
    scores = path_scores(weights)
    for frame in range(5):
        scaled = [size * row[frame] + 0.0025 for size, row in zip(sizes, rows, strict=True)]
        for token in range(3):
            assert scores[token, frame] == pytest.approx(np.log(scaled[token] / sum(scaled)), abs=1e-12)


def test_evidence_is_that_of_the_word_and_its_neighbours():
    null = np.array([0.1, 0.2, 0.9])
    observation = Observation(np.ones((3, 4)), np.ones(4), null, np.array([0, 0, 1]))
    odds = np.log(null / (1 - null))
    first, second = odds[:2].mean(), odds[2]
    expected = [[first, first, second], [second, first, second]]
    np.testing.assert_allclose(observation.evidence(), expected, rtol=1e-6)


def test_unspoken_words_are_not_on_the_path():
    attention = np.full((3, 8), 1e-4)
    attention[0, 1:3] = attention[1, 2:4] = attention[2, 5:7] = 1
    observation = Observation(attention, np.array([1.0, 0, 0, 1, 1, 0, 0, 1]), np.zeros(3), np.arange(3))
    spans = observation.spans(np.array([True, False, True]))
    np.testing.assert_allclose(spans * 50, [[1, 3], [3, 3], [5, 7]])
    assert observation.spans(np.zeros(3, bool)).tolist() == [[0, 0]] * 3


def test_learned_probability_separates():
    rng = np.random.default_rng(1)
    planted = rng.random(400) < 0.3
    evidence = rng.normal(size=(400, 3)) + 3 * planted[:, None]
    probabilities = Unspoken.learn(evidence, planted).probabilities(evidence)
    assert probabilities[planted].min() > 0.05
    assert (probabilities > 0.5).astype(bool).tolist().count(True) == pytest.approx(planted.sum(), abs=15)


def test_windows_are_cut_in_pauses():
    audio = np.concatenate([np.ones(RATE * 25), np.zeros(RATE), np.ones(RATE * 40)]).astype(np.float32)
    windows = list(cut(audio, 30))
    assert np.array_equal(np.concatenate([samples for _, samples in windows]), audio)
    assert 25 < windows[1][0] < 26
    assert max(len(samples) for _, samples in windows) <= 30 * RATE
    assert [start for start, _ in windows] == [0, *np.cumsum([len(samples) for _, samples in windows])[:-1] / RATE]


def test_text_is_divided_by_what_was_heard():
    heard = [["The", "old", "man."], ["sold", "his", "house"]]
    assert assigned(["the", "old", "grey", "man", "sold", "a", "house", "now"], heard) == [
        ["the", "old", "grey", "man"],
        ["sold", "a", "house", "now"],
    ]
    assert assigned(["well", "the", "old"], [["the"], ["old"]]) == [["well", "the"], ["old"]]
    assert assigned(["a"], [[], []]) == [["a"], []]
    assert unmatched(["The", "man"], ["the", "old", "man."]) == {1: False}
    assert unmatched(["a", "b"], ["c", "b", "d"]) == {0: True, 2: False}


def test_words_that_nobody_wrote_are_inserted_at_their_time():
    words = [Word("rich", 1.0, 2.0), Word("no", 2.0, 2.0, 0.1, "unspoken"), Word("now", 2.0, 2.5)]
    heard = {
        Word("and", 1.5, 1.8): False,
        Word("wow", 2.1, 2.4): True,
        Word("um", 2.2, 2.2, 0.1, "unspoken"): False,
        Word("again", 2.6, 2.9): True,
    }
    merged = list(_merged(words, heard))
    assert [(word.text, word.start, word.end, word.kind) for word in merged] == [
        ("rich", 1.0, 1.5, "said"),
        ("and", 1.5, 1.8, "unwritten"),
        ("no", 2.0, 2.0, "unspoken"),
        ("now", 2.0, 2.5, "said"),
        ("again", 2.6, 2.9, "unwritten"),
    ]


# ---- what is refused ----


def test_models_and_audio_that_cannot_be_used(learned):
    model, processor, unspoken, _ = learned
    with pytest.raises(ValueError, match="has no observer with a NULL"):
        word_times(tiny_whisper()[0], processor, np.ones(100))
    for audio in (np.zeros(0), np.zeros((2, 5))):
        with pytest.raises(ValueError, match="one channel"):
            word_times(model, processor, audio)
    with pytest.raises(ValueError, match="finite"):
        word_times(model, processor, np.array([np.nan]))
    with pytest.raises(ValueError, match="`text` must have words"):
        word_times(model, processor, np.ones(RATE, np.float32), " \n")
    with pytest.raises(ValueError, match="the text does not fit the audio"):
        word_times(model, processor, tone("low", 1.0), "low " * 60, unspoken=unspoken)


def test_speech_that_cannot_be_learned():
    model, processor = tiny_whisper()
    windows = spoken_tones(1, 2)
    with pytest.raises(ValueError, match="`windows` must have two windows"):
        learn_word_times(model, processor, windows[:1], windows)
    wrong = [windows[0], windows[1]._replace(words=[Word("low", 1.0, 9.0)])]
    with pytest.raises(ValueError, match=r"`held_out`: window 1 .* 'low' from 1.0 to 9.0"):
        learn_word_times(model, processor, windows, wrong)
