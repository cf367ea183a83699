"""Jobs in which one head learns links: of a file or of counts, in a model or an adapter; and what is refused."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from runs import write_corpus
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from hf_attncal import WordAligner, adapt, translate
from hf_attncal.adapters.observer_learning import nearest_head
from hf_attncal.alignment import Seq2SeqAttention
from hf_attncal.alignment.counting import guided_head_on_gold, with_counted_links
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.pharaoh import parse_alignments
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.data.word_tokens import text_and_word_ids
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import read
from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import read_lines
from hf_attncal.models.losses import target_rows
from hf_attncal.training.adapter import AdapterConfig, train_adapter
from hf_attncal.training.calibrated import AttnCalTrainer
from hf_attncal.training.seq2seq import build_seq2seq_model
from hf_attncal.training.settings import DataConfig
from hf_attncal.training.summarization import SummarizationConfig
from hf_attncal.training.text import annotated, guide_links
from hf_attncal.training.translation import TranslationConfig, train_translation

SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 64}
RUN = {"max_steps": 4, "tokens_per_batch": 400, "logging_steps": 2, "bf16": False, "eval_strategy": "no"}
HEAD = {"guided_layer": 1, "guided_head": 1}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), train=200)


def values(corpus, output, guide=True, **sections) -> dict:
    """Settings of a run as plain data, with 20 of the 200 pairs held out."""
    train = {"source": "train.en", "target": "train.de"} | ({"guide": "train.align"} if guide else {})
    test = {"source": "test.en", "target": "test.de", "gold": "test.align"}
    data = {"root": str(corpus), "train": train, "test": test, "held_out_pairs": 20}
    plain = {"data": data, "evaluation": {"num_beams": 1, "dev_lines": 3}} | sections
    training = RUN | sections.get("training", {}) | {"output_dir": str(output), "disable_tqdm": True, "use_cpu": True}
    return plain | {"training": training}


def settings(corpus, output, guide=True, model=None, **sections) -> TranslationConfig:
    sections |= {"model": SIZES | {"guided": True} | HEAD | (model or {}), "tokenizer": {"vocab_size": 300}}
    return TranslationConfig.make(values(corpus, output, guide, **sections))


@pytest.fixture(scope="module")
def base(corpus, tmp_path_factory):
    """A model with its tokenizer; ours, with every switch off."""
    folder = tmp_path_factory.mktemp("base")
    lines = [line for name in ("train.en", "train.de") for line in read_lines(corpus / name)]
    tokenizer = train_bpe_tokenizer(lines, 300)
    build_seq2seq_model(settings(corpus, folder, model={"guided": False}, guide=False, **_no_gold(corpus)), tokenizer)
    config = settings(corpus, folder, model={"guided": False}, guide=False, **_no_gold(corpus))
    build_seq2seq_model(config, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _no_gold(corpus) -> dict:
    train = {"source": "train.en", "target": "train.de"}
    return {"data": {"root": str(corpus), "train": train}}


def logged(results, name="guided_loss") -> list[float]:
    return [entry[name] for entry in results["log_history"] if name in entry]


def check_aligner(folder, corpus, results) -> None:
    """The folder aligns by the head that has learned, as well as the results say."""
    aligner = WordAligner.from_pretrained(folder, device="cpu")
    assert aligner.settings == Seq2SeqAttention(1, (1,), shift=True)
    assert results["alignment"]["settings"] == aligner.settings.to_dict()
    pairs = list(zip(read_lines(corpus / "test.en"), read_lines(corpus / "test.de"), strict=True))
    found = [set(aligned.links) for aligned in aligner.align(pairs)]
    gold = parse_alignments(read_lines(corpus / "test.align"))
    hits = sum(len(links & pair.sure) for links, pair in zip(found, gold, strict=True))
    size = sum(map(len, found)) + sum(len(pair.sure) for pair in gold)
    assert results["alignment"]["test"]["aer"] == pytest.approx(1 - 2 * hits / size)


# ---- jobs ----


def test_a_model_learns_the_links_of_a_file(corpus, tmp_path):
    results = train_translation(settings(corpus, tmp_path / "run"))
    assert len(logged(results)) == 2
    assert "counts" not in results
    stored = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert stored["alignment"]["test"]["aer"] == results["alignment"]["test"]["aer"]
    check_aligner(tmp_path / "run", corpus, results)
    model, _ = load_seq2seq(tmp_path / "run")
    assert model.config.guided_attention == (1, 1)
    assert "a head that learned word links" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_one_process_of_several_reports_the_error(corpus, base, tmp_path, monkeypatch, capsys):
    aligner = WordAligner.from_pretrained(base, device="cpu")
    golds = annotated(settings(corpus, tmp_path).data)
    for first in (True, False):
        monkeypatch.setattr(
            "hf_attncal.alignment.counting.PartialState", lambda first=first: SimpleNamespace(is_main_process=first)
        )
        guided_head_on_gold(golds, aligner.model, aligner.tokenizer, layer=1, heads=(1,), shift=True)
        assert ("test: AER" in capsys.readouterr().out) == first


def test_an_adapter_learns_the_links_of_a_file(corpus, base, tmp_path):
    adapter = {"calibration": None, "guided": True, "guided_rank": 4} | HEAD
    sections = {"adapter": adapter, "model": {"checkpoint": str(base)}}
    results = train_adapter(AdapterConfig.make(values(corpus, tmp_path / "run", **sections)))
    assert results["trained_parameters"] == 2 * 4 * (16 + 8)
    assert len(logged(results)) == 2
    check_aligner(tmp_path / "run", corpus, results)


def test_an_observer_learns_links_and_leaves_the_translations(corpus, base, tmp_path, capsys):
    options = {"source": str(corpus / "train.en"), "target": str(corpus / "train.de"), "output": tmp_path / "run"}
    test = [str(corpus / f"test.{end}") for end in ("en", "de", "align")]
    result = adapt(base, **options, links=corpus / "train.align", test=test, observe=True)
    scores = result.scores
    assert scores["observer"]["agreement"] > scores["observer"]["before"]
    assert "right for" in capsys.readouterr().out
    stored = json.loads((tmp_path / "run" / "alignment.json").read_text(encoding="utf-8"))
    assert (stored["weights"], stored["mutual"]) == ("observer", True)
    assert scores["alignment"]["settings"]["weights"] == "observer"
    assert 0 < scores["alignment"]["test"]["aer"] < 1
    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()[:8]
    links = tmp_path / "links.align"
    assert [*translate(tmp_path / "run", lines, alignments=links)] == [*translate(base, lines)]
    assert len(links.read_text(encoding="utf-8").splitlines()) == len(lines)
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "observe" in card
    with pytest.raises(CommandError, match="--observe and --calibration do not go together"):
        adapt(base, **options, observe=True, calibration="gated")
    with pytest.raises(CommandError, match=r"training\.learning_rate, --minutes cannot go with --observe"):
        adapt(base, "training.seed=2", "training.learning_rate=1", **options, observe=True, minutes=1)


def test_an_adapter_without_a_place_takes_the_head_that_is_nearest(corpus, base, tmp_path, capsys):
    """Links where one head of the base model looks are nearest to that head, at that step."""
    model, tokenizer = load_seq2seq(base)
    text = (
        DataConfig(root=str(corpus), train={"source": "train.en", "target": "train.de"}).load("train").select(range(8))
    )
    examples, _ = tokenize_pairs(text, tokenizer, 60, links=[[] for _ in text])
    batch = LinkCollator(DataCollatorForSeq2Seq(tokenizer))([dict(one) for one in examples])
    plain = {name: tensor for name, tensor in batch.items() if name != "links"}
    weights = torch.stack(read(model, plain).attentions)  # (layers, B, heads, T, S)
    for layer, head, shift in ((1, 0, True), (0, 1, False)):
        best = target_rows(weights[layer][:, head], batch["labels"], shift).argmax(dim=-1)
        links = torch.nn.functional.one_hot(best, batch["input_ids"].shape[1])
        assert nearest_head(model, [plain | {"links": links}]) == ((layer, head, shift), 1)
    with pytest.raises(ValueError, match="must link at least one token of the text"):
        nearest_head(model, [batch])
    sections = {"adapter": {"guided": True, "calibration": None}, "model": {"checkpoint": str(base)}}
    train_adapter(AdapterConfig.make(values(corpus, tmp_path / "run", **sections)))
    told = re.search(
        r"layer (\d), head (\d) \(counted from 0\).*that (reads|predicts) a token", capsys.readouterr().out
    )
    (saved,) = (tmp_path / "run").glob("*/adapter_config.json")
    kept = json.loads(saved.read_text(encoding="utf-8"))
    assert [kept["guided_layer"], kept["guided_head"]] == [int(told[1]), int(told[2])]
    assert kept["guided_shift"] == (told[3] == "reads")


@pytest.fixture
def given(monkeypatch) -> list[Dataset]:
    """The training text of every Trainer that is made."""
    made = []
    init = AttnCalTrainer.__init__

    def noting(self, *args, **kwargs):
        made.append(kwargs["train_dataset"])
        init(self, *args, **kwargs)

    monkeypatch.setattr(AttnCalTrainer, "__init__", noting)
    return made


def test_links_stay_with_their_pairs(corpus, tmp_path, given):
    """Beside pairs that are held out, too long or empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    lines = {name: list(read_lines(corpus / f"train.{name}")) for name in ("en", "de", "align")}
    lines["en"][1] = lines["align"][1] = ""
    lines["de"][3] += " haus" * 200
    for name, text in lines.items():
        (folder / f"train.{name}").write_text("\n".join(text) + "\n", encoding="utf-8")
    data = {"root": str(folder), "train": {"source": "train.en", "target": "train.de", "guide": "train.align"}}
    train_translation(settings(corpus, tmp_path / "run", data=data | {"held_out_pairs": 20}))
    tokenizer, (text,) = AutoTokenizer.from_pretrained(tmp_path / "run"), given
    known = {(source, target): links.split() for source, target, links in zip(*lines.values(), strict=True)}
    assert len(text) == 200 - 20 - 2
    for row in text:
        source, target = (tokenizer.decode(row[name], skip_special_tokens=True) for name in ("input_ids", "labels"))
        words = [text_and_word_ids(tokenizer, tokenizer(side).input_ids)[1] for side in (source, target)]
        links = zip(row["links"][::2], row["links"][1::2], strict=True)
        assert {f"{words[0][s]}-{words[1][t]}" for s, t in links} == set(known[source, target])


def test_without_a_file_the_counts_guide(corpus, tmp_path, given):
    results = train_translation(settings(corpus, tmp_path / "run", guide=False))
    assert len(results["counts"]["log_history"]) == 9
    assert all(loss > 0 for loss in logged(results))
    (text,) = given
    assert sum(map(len, text["links"])) > 2 * len(text)
    assert all(max(row["links"][::2]) < len(row["input_ids"]) - 1 for row in text if row["links"])  # never the end
    assert all(max(row["links"][1::2]) < len(row["labels"]) - 1 for row in text if row["links"])


def test_counted_links_step_over_special_tokens(tmp_path):
    """Which some tokenizers put in front."""
    words = {"a": 5, "b": 6, "c": 7}
    lines = [list(line) for line in ("abc", "ab", "bc", "ca", "b", "c", "a") * 4]
    ids = [[0, *(words[word] for word in line), 2] for line in lines]
    labels = [[9, *(words[word] + 10 for word in line), 2] for line in lines]
    tokenizer = SimpleNamespace(all_special_ids=[0, 2, 3, 9], unk_token_id=3)
    run = SimpleNamespace(ends=None, args=SimpleNamespace(process_index=0, output_dir=tmp_path))
    text = Dataset.from_dict({"input_ids": ids, "labels": labels})
    text, counted = with_counted_links(text, tokenizer, run)
    assert counted["counts"]["wall_seconds"] > 0
    for row, line in zip(text["links"], lines, strict=True):
        assert row == [place for n in range(len(line)) for place in (n + 1, n + 1)]


@pytest.mark.slow
def test_it_aligns_after_a_while(corpus, tmp_path):
    run = {"max_steps": 200, "learning_rate": 1e-2, "warmup_steps": 20, "logging_steps": 50}
    size = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "scale_embedding": True, "init_std": 0.17}
    model = size | {"guided_weight": 3.0}
    results = train_translation(settings(corpus, tmp_path / "run", training=run, model=model))
    assert results["alignment"]["test"]["aer"] < 0.35
    assert logged(results)[-1] < 0.7 * logged(results)[0]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("line", "links", "message"),
    [
        (None, ["0-0"] * 199, r"train.bad has 199 lines of links for 200 sentence pairs"),
        (None, [""] * 200, r"train.bad` is empty"),
        (7, "0-0 90-0", r"train.bad: line 7: link 90-0 lies outside a pair of \d+ source and \d+ target words"),
        (200, "0-0 0-90", r"train.bad: line 200: link 0-90 lies outside a pair"),
        (3, "0:0", r"train.bad: line 3: '0:0' is not a link"),
    ],
)
def test_bad_files_of_links(corpus, tmp_path, line, links, message):
    if line is not None:
        lines = list(read_lines(corpus / "train.align"))
        lines[line - 1], links = links, lines
    (corpus / "train.bad").write_text("\n".join(links) + "\n", encoding="utf-8")
    train = {"source": "train.en", "target": "train.de", "guide": "train.bad"}
    data = DataConfig(root=str(corpus), train=train, held_out_pairs=20)
    with pytest.raises(ValueError, match=message):
        guide_links(data, data.load("train"), range(20))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"guided": False}, "`data.train.guide` needs `model.guided` true, got false"),
        ({"guided_layer": 2}, "`model.guided_layer` must be from 0 to 1 in this model, got 2"),
        ({"guided_head": 2}, "`model.guided_head` must be from 0 to 1 in this model, got 2"),
        ({"guided_weight": 0}, "`model.guided_weight` must be > 0 and finite, got 0"),
    ],
    ids=str,
)
def test_bad_settings(corpus, tmp_path, model, message):
    with pytest.raises(ValueError, match=message):
        settings(corpus, tmp_path, model=model)


def test_models_that_learn_no_links(corpus, tmp_path):
    luong = {"model": {"backbone": "luong", "guided": True}}
    with pytest.raises(ValueError, match=r"`model.guided`.*recurrent"):
        TranslationConfig.make(values(corpus, tmp_path, **luong))
    with pytest.raises(ValueError, match=r"unknown key `model.guided`"):
        TranslationConfig.make(values(corpus, tmp_path, model={"backbone": "discrete_transformer", "guided": True}))
    with pytest.raises(ValueError, match=r"unknown key `data.train.guide`"):
        SummarizationConfig.make(values(corpus, tmp_path))
    with pytest.raises(ValueError, match=r"`data.train.guide`.*`adapter.guided`.*got false"):
        AdapterConfig.make(values(corpus, tmp_path, model={"checkpoint": str(corpus)}))


def test_gold_without_a_guided_head(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"`data.test.gold`.*`model.guided`.*got false"):
        settings(corpus, tmp_path, guide=False, model={"guided": False})


@pytest.mark.parametrize("train", [train_translation, train_adapter])
def test_bad_gold_is_refused_before_training(corpus, base, tmp_path, train, monkeypatch):
    monkeypatch.setattr("hf_attncal.training.job.run_trainer", lambda *_: pytest.fail("trained"))
    (corpus / "short.align").write_text("0-0\n", encoding="utf-8")
    test = {"source": "test.en", "target": "test.de", "gold": "short.align"}
    plain = values(corpus, tmp_path / "run")
    plain["data"]["test"] = test
    if train is train_adapter:
        sections = {"adapter": {"calibration": None, "guided": True} | HEAD, "model": {"checkpoint": str(base)}}
        config = AdapterConfig.make({"data": plain["data"], "training": plain["training"], **sections})
    else:
        plain["model"] = SIZES | {"guided": True} | HEAD
        config = TranslationConfig.make(plain | {"tokenizer": {"vocab_size": 300}})
    with pytest.raises(ValueError, match=r"short.align has 1 lines"):
        train(config)


def test_links_of_truncated_sources(corpus, base):
    text = Dataset.from_dict({"source": ["a b"], "target": ["c"]})
    with pytest.raises(ValueError, match=r"`links`.*got `max_source_length` 5"):
        tokenize_pairs(text, AutoTokenizer.from_pretrained(base), 9, 5, links=[[(0, 0)]])
