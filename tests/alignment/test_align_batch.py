"""`AlignBatch` under `datasets.map`: several processes give what one gives, and each loads the model once."""

import pickle

import numpy as np
import pandas
import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertModel

from hf_attncal.alignment import AlignBatch, WordAligner, encoder_prior
from hf_attncal.alignment import aligner as module
from hf_attncal.alignment.count_learner import CountLearner
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

ENGLISH = ["the old house", "a house", "the old", "", "an old house is a house", "old, old house"] * 4
GERMAN = ["das alte Haus", "ein Haus", "das alte", "leer", "ein altes Haus ist ein Haus", "altes, altes Haus"] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = train_bpe_tokenizer(ENGLISH + GERMAN, vocab_size=60)
    model = HMMAlignModel(HMMAlignConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)).eval()
    ids = [tokenizer(side, add_special_tokens=False)["input_ids"] for side in (ENGLISH, GERMAN)]
    CountLearner(model, *ids).run()
    folder = tmp_path_factory.mktemp("aligner")
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def text() -> Dataset:
    return Dataset.from_dict({"en": ENGLISH, "de": GERMAN, "number": list(range(len(ENGLISH)))})


@pytest.mark.parametrize("batch_size", [4, 5])
def test_several_processes_give_what_one_gives(folder, text, batch_size):
    """Equal to the bit if batches have the same pairs (4 of each process's 8), because rounding depends on them."""
    options = {"source": "en", "target": "de", "score": "score", "device": "cpu"}
    one = text.map(AlignBatch(folder, **options), batched=True, batch_size=batch_size)
    several = text.map(AlignBatch(folder, **options), batched=True, batch_size=batch_size, with_rank=True, num_proc=3)
    assert one.column_names == several.column_names == ["en", "de", "number", "links", "score"]
    if batch_size == 4:
        assert one[:] == several[:]
    assert one.remove_columns("score")[:] == several.remove_columns("score")[:]
    assert list(one["score"]) == pytest.approx(list(several["score"]), abs=1e-6)
    aligned = WordAligner.from_pretrained(folder, device="cpu").align(list(zip(ENGLISH, GERMAN, strict=True)))
    assert list(one["links"]) == [each.pharaoh() for each in aligned]
    assert sum(map(len, one["links"])) > 100


def test_the_model_is_loaded_once_and_is_not_pickled(folder, monkeypatch):
    loaded = []
    load = WordAligner.from_pretrained
    monkeypatch.setattr(
        module.WordAligner, "from_pretrained", lambda name, **options: loaded.append(options) or load(name, **options)
    )
    function = AlignBatch(folder, loading={"dtype": "float64"}, threshold=0.9)
    fresh = pickle.dumps(function)
    assert loaded == []
    batch = {"source": ["the house"], "target": ["das Haus"]}
    assert function(batch) == function(batch)
    assert len(loaded) == 1
    assert loaded[0]["dtype"] == "float64"
    assert pickle.dumps(function) == fresh
    assert pickle.loads(fresh)(batch) == function(batch)
    assert len(loaded) == 2


class Prior(encoder_prior.EncoderPrior):
    """A random encoder that is believed."""

    def __init__(self):
        tokenizer = train_bpe_tokenizer(ENGLISH + GERMAN, vocab_size=60)
        size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
        torch.manual_seed(1)
        super().__init__(BertModel(BertConfig(vocab_size=len(tokenizer), **size)).eval(), tokenizer, layer=1)

    def _learn_statistics(self, *arguments):
        found = super()._learn_statistics(*arguments)
        self.likelihood.strength = 1.0
        return found


@pytest.mark.filterwarnings("ignore:the encoder recognises")
def test_the_encoder_learns_from_the_sample_and_not_from_the_first_batch(folder, monkeypatch):
    """So processes that begin with other batches give the same links."""
    devices = []

    def from_pretrained(name, device):
        devices.append(device)
        return Prior()

    monkeypatch.setattr(encoder_prior.EncoderPrior, "from_pretrained", from_pretrained)
    pairs = list(zip(ENGLISH, GERMAN, strict=True))
    options = {"encoder": "e5", "sample": pairs[:5], "score": "score", "device": "cpu"}
    batches = [{"source": ENGLISH[at], "target": GERMAN[at]} for at in (slice(0, 2), slice(2, 6))]
    first, second = (pickle.loads(pickle.dumps(AlignBatch(folder, **options))) for _ in range(2))
    found = [first(batch) for batch in batches]
    assert found == [second(batch) for batch in reversed(batches)][::-1]
    assert devices == ["cpu", "cpu"]  # of the aligner; an encoder would stay on the CPU by default
    aligner = WordAligner.from_pretrained(folder, device="cpu")
    without = [a.score for a in aligner.align(pairs[:2])]
    aligner.use_encoder(Prior())
    own = [a.score for a in aligner.align(pairs[:2])]
    assert found[0]["score"] != pytest.approx(without, abs=1e-3)
    assert found[0]["score"] != pytest.approx(own, abs=1e-6)
    aligner.source.prior.forget()
    aligner.align(pairs[:5])
    assert found[0]["score"] == pytest.approx([a.score for a in aligner.align(pairs[:2])], abs=1e-6)


@pytest.mark.parametrize("options", [{"encoder": "e5"}, {"sample": [("a house", "ein Haus")]}])
def test_an_encoder_needs_a_sample(folder, options):
    with pytest.raises(ValueError, match=r"`encoder` and `sample` go together.*give both"):
        AlignBatch(folder, **options)


def test_another_process_loads_its_own(folder, monkeypatch):
    """A fork inherits an aligner that may be on another device."""
    function = AlignBatch(folder, device="cpu")
    function({"source": ["a"], "target": ["b"]})
    before = function._aligner
    monkeypatch.setattr("os.getpid", lambda: -1)
    threads = torch.get_num_threads()
    try:
        function({"source": ["a"], "target": ["b"]}, 1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    assert function._aligner is not before


def test_columns_in_and_out(folder):
    function = AlignBatch(folder, links="pairs", offsets=True, tokenize=True, device="cpu")
    found = function({"source": ["house,the", None], "target": ["Haus, das", "x"], "other": [1, 2]})
    assert set(found) == {"source", "target", "other", "pairs"}
    assert found["other"] == [1, 2]
    spans = [pair.split("-") for pair in found["pairs"][0].split()]
    assert {"house,the"[slice(*map(int, source.split(":")))] for source, _ in spans} <= {"house", ",", "the"}
    assert {"Haus, das"[slice(*map(int, target.split(":")))] for _, target in spans} <= {"Haus", ",", "das"}
    assert spans
    assert found["pairs"][1] == ""


def test_a_column_that_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match=r"'en'.*\['source'\]"):
        AlignBatch(folder, source="en")({"source": ["a"]})


def test_sentences_as_lists_of_words_and_what_is_missing(folder):
    """Sentences may also be numpy or pandas values."""
    function = AlignBatch(folder, device="cpu")
    plain = function({"source": ENGLISH[:4], "target": GERMAN[:4]})["links"]
    words = [[line.split() for line in side[:4]] for side in (ENGLISH, GERMAN)]
    arrays = [[np.array(line, dtype=object) for line in side] for side in words]
    for source, target in (words, map(tuple, words), arrays, (np.array(ENGLISH[:4]), np.array(GERMAN[:4]))):
        assert function({"source": source, "target": target})["links"] == plain
    assert plain[3] == ""
    for missing in (None, float("nan"), np.float64("nan"), pandas.NA):
        assert function({"source": [missing, "house"], "target": ["Haus", missing]})["links"] == ["", ""]


@pytest.mark.parametrize("value", [3.5, 7, b"house", ["the", 1], [["the", "house"]], {"text": "house"}])
def test_values_that_are_not_sentences_are_named(folder, value):
    function = AlignBatch(folder, source="en", target="de", device="cpu")
    with pytest.raises(ValueError, match=r"Column .en..*row 1"):
        function({"en": ["a house", value], "de": ["ein Haus", "ein Haus"]})
