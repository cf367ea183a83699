"""Several encoders compared by the agreement of their directions, against loops; and what `--encoder` makes of it."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from seq2seq_helpers import bpe_tokenizer, randomized, sized
from transformers import (
    BertConfig,
    BertModel,
    M2M100Config,
    M2M100Model,
    MBart50Tokenizer,
    MBartConfig,
    MBartModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from hf_attncal import align_quick, select
from hf_attncal.alignment.encoder import EncoderStates
from hf_attncal.alignment.encoder_choice import compare_encoders
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.opening import chosen_encoder
from hf_attncal.commands import main
from hf_attncal.data.synthetic.english_german import generate_pairs
from hf_attncal.inference.running import Running

# The same words from the end to the beginning: an encoder that reads words finds them, one that reads places does not.
TEXTS = [tuple(pair.source) for pair in generate_pairs(60, seed=9) if 3 < len(pair.source) < 12][:30]
SOURCES, TARGETS = ([" ".join(text[::step]) for text in TEXTS] for step in (1, -1))
RUNNING = Running(device="cpu", dtype="float32")
KINDS = ("bert", "xlm-roberta", "m2m100", "mbart")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """A random encoder of each kind, one that sees hardly more than the word, and one that sees where it stands."""
    tokenizer = bpe_tokenizer()
    size = sized(tokenizer) | {"encoder_layers": 3, "encoder_layerdrop": 0.0}
    bert = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    bert |= {key: size[key] for key in ("vocab_size", "pad_token_id")} | {"max_position_embeddings": 70}
    letters = sorted({letter for text in TEXTS for word in text for letter in word})
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *letters]
    coded = MBart50Tokenizer(vocab=[(piece, 0.0) for piece in pieces])
    made = {
        "bert": (BertModel(BertConfig(**bert)), tokenizer),
        "word": (BertModel(BertConfig(**bert)), tokenizer),
        "place": (BertModel(BertConfig(**bert)), tokenizer),
        "xlm-roberta": (XLMRobertaModel(XLMRobertaConfig(**bert)), tokenizer),
        "m2m100": (M2M100Model(M2M100Config(**size)), tokenizer),
        "mbart": (MBartModel(MBartConfig(**size | {"vocab_size": len(coded), "pad_token_id": 1})), coded),
    }
    found = {}
    for name, (model, words) in made.items():
        randomized(model.eval())
        if name in ("word", "place"):
            model.embeddings.position_embeddings.weight.data *= 0.05 if name == "word" else 20
            for layer in model.encoder.layer:
                layer.attention.output.dense.weight.data *= 0.05
        found[name] = str(tmp_path_factory.mktemp("encoders") / name)
        model.save_pretrained(found[name])
        words.save_pretrained(found[name])
    return found


@pytest.fixture
def text(tmp_path) -> list[str]:
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [f"--{name}={tmp_path / name}" for name in ("source", "target")]


def test_agreement_is_that_of_loops_over_pairs_and_their_neighbours(folders):
    found = compare_encoders([folders["place"], folders["word"]], SOURCES, TARGETS, RUNNING)
    drawn = np.random.default_rng(0).multinomial(len(TEXTS), np.full(len(TEXTS), 1 / len(TEXTS)), size=1000)
    sampled = {}
    for one in found:
        encoder = EncoderPrior.from_pretrained(one.name)
        pairs = sorted(
            zip(SOURCES, TARGETS, strict=True), key=lambda pair: (len(pair[0].split()), len(pair[1].split()))
        )
        pairs = [tuple(tuple(side.split()) for side in pair) for pair in pairs]
        encoder.cells([tuple(tuple(side.split()) for side in pair) for pair in zip(SOURCES, TARGETS, strict=True)])
        own = encoder.cells(pairs)
        others = encoder.cells([(here[0], after[1]) for here, after in pairwise(pairs)])

        def known(times, own=own, others=others):
            shares = []
            for some in (own, others):
                best, words = [0.0, 0.0], [0, 0]
                for cells, weight in zip(some, times, strict=False):
                    for side, of_side in enumerate((cells, cells.T)):
                        for row in of_side.tolist():
                            best[side] += weight * max(row)
                            words[side] += weight
                shares.append([total / number for total, number in zip(best, words, strict=True)])
            return [(share - chance) / (1 - chance) for share, chance in zip(*shares, strict=True)]

        assert known([1] * len(pairs)) == pytest.approx([one.source, one.target], abs=1e-9)
        assert one.agreement == pytest.approx((one.source + one.target) / 2, abs=1e-12)
        sampled[one.name] = [sum(known(times.tolist())) / 2 for times in drawn[:200]]
        low, high = np.quantile(sampled[one.name], (0.025, 0.975))
        assert one.interval == pytest.approx((low, high), abs=0.05)
    ahead = np.mean([one > other for one, other in zip(*sampled.values(), strict=True)])
    assert found.sure == pytest.approx(ahead, abs=0.05)
    assert found[0].agreement > found[1].agreement + 0.2
    assert Path(found[0].name).name == "word"
    assert found.pairs == len(TEXTS)


def test_encoders_of_every_kind_are_compared_and_the_one_that_is_taken_helps(folders, text, tmp_path, capsys):
    chosen = tmp_path / "chosen"
    names = [folders[kind] for kind in (*KINDS, "place")]
    command = ["align", "select", *names, *text, f"--output={chosen}", "--device=cpu", "--languages=en-de"]
    assert main(command) == 0
    rows = capsys.readouterr().out.splitlines()
    agreements = [float(row.split()[0]) for row in rows[:-1]]
    assert len(agreements) == 5
    assert agreements == sorted(agreements, reverse=True)
    assert all(sum(name in row for row in rows[:-1]) == 1 for name in names)
    settings = json.loads((chosen / "alignment.json").read_text(encoding="utf-8"))
    assert rows[0].partition("  ")[2].startswith(settings["encoder"])
    assert f"--encoder {settings['encoder']}" in rows[-1]
    assert chosen_encoder(str(chosen)) == settings["encoder"]

    links = [
        [one.links for one in align_quick(list(zip(SOURCES, TARGETS, strict=True)), encoder=name)]
        for name in (str(chosen), settings["encoder"])
    ]
    assert links[0] == links[1]
    found = select(names[:2], SOURCES, TARGETS, running=RUNNING)
    assert {one.name for one in found} == set(names[:2])
    assert str(found).count("\n") == 2


def test_what_is_chosen_keeps_the_languages_of_an_encoder_with_codes(folders, tmp_path):
    names = [folders["mbart"], folders["place"]]
    found = compare_encoders(names, SOURCES, TARGETS, Running(device="cpu", languages="en-de"))
    coded = next(one for one in found if one.name == names[0])
    assert (coded.settings.source_language, coded.settings.target_language) == ("en_XX", "de_DE")
    EncoderStates(2, encoder=names[0], source_language="en_XX", target_language="de_DE").save(tmp_path, names[0])
    encoder = EncoderPrior.from_pretrained(tmp_path)
    assert encoder.layer == 2
    assert encoder.settings.target_language == "de_DE"


def test_what_cannot_be_compared_is_said_before_anything_is_loaded(folders, text, tmp_path, capsys):
    one, other = folders["bert"], folders["place"]
    for command, message in (
        ([one, one], "ENCODER must be two different ones or more, got"),
        ([one, other, "--read", "source_prefix=a"], "--read is for one model, got 2: leave it out, or name one"),
        ([one, other, f"--gold={tmp_path / 'source'}"], "--gold is for one model, got 2"),
        ([one, str(tmp_path / "nowhere")], "There is no folder"),
        ([one, other, f"--output={one}"], "holds a model"),
        ([one, folders["mbart"]], "`source_language` must be a code of MBart50Tokenizer"),
    ):
        assert main(["align", "select", *command, *text, "--device=cpu"]) == 1
        assert message in capsys.readouterr().err
    assert not (Path(one) / "alignment.json").exists()
    (tmp_path / "short").write_text("a\n", encoding="utf-8")
    short = [f"--{side}={tmp_path / 'short'}" for side in ("source", "target")]
    assert main(["align", "select", one, other, *short]) == 1
    assert "must have two pairs with words, got 1" in capsys.readouterr().err


def test_a_folder_that_names_no_encoder_and_one_that_is_gone_are_told(tmp_path, text, capsys):
    gone = tmp_path / "gone"
    EncoderStates(2, encoder=str(gone)).save(tmp_path)
    assert main(["align", "quick", *text, f"--encoder={tmp_path}"]) == 1
    assert f"There is no folder {gone}" in capsys.readouterr().err
    with pytest.raises(ValueError, match="`encoder` must be a folder or a name on the Hub, got 3"):
        EncoderStates(2, encoder=3)
    assert "encoder" not in EncoderStates(2).to_dict()
