"""Model cards: what they say of each kind of model, and that their examples run whatever they are about."""

import json
import re
import subprocess
import sys

import pytest
from huggingface_hub import ModelCard
from warm import warm

from hf_attncal import HMMAlignConfig, HMMAlignModel, MaskAlignConfig, MaskAlignModel
from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.families import FAMILIES
from hf_attncal.hub import Result, inspect_folder, write_model_card
from hf_attncal.hub.model_cards import CARD_END, CARD_START, write_section
from hf_attncal.metrics.probabilities import probability_score

TEXTS = {"model_name": "me/model", "summary": "A summary.", "training_data": "three lines", "example": "a b"}


def card_of(folder, config=None, **texts) -> str:
    """The card of a folder, with `config` as its configuration if it has none yet."""
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return write_model_card(folder, **TEXTS | texts).read_text(encoding="utf-8")


def python_example(card: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    return code


def run(code: str) -> str:
    return subprocess.run(
        warm([sys.executable, "-c", code], "bare"), capture_output=True, text=True, check=True
    ).stdout


def test_a_card_describes_the_model_and_its_scores(folder):
    text = card_of(folder, languages=("en", "de"), results=[Result("BLEU", 61.25, "nrefs:1|version:x")])
    card = ModelCard(text)
    assert card.data.language == ["en", "de"]
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "translation"
    assert card.data.tags == ["attention-calibration", "custom_code"]
    assert "| BLEU | 61.2 | `nrefs:1\\|version:x` |" in card.text
    assert "`calibration`: `gated`" in card.text
    assert "leaky" not in card.text
    assert "from_pretrained(name, trust_remote_code=True)" in card.text
    assert "pipeline(" not in card.text


def test_only_the_card_of_a_calibrated_model_names_its_method(folder):
    said = "Lu et al.", "output_attention_details"
    assert all(part in card_of(folder) for part in said)
    config = json.loads((folder / "config.json").read_text())
    text = card_of(folder, config | {"calibration": None, "leaky": True})
    assert "Mask-Align" in text
    assert not any(part in text for part in said)


def test_a_card_without_results_has_a_note(folder):
    text = card_of(folder)
    assert "Not measured." in text
    assert "| measure |" not in text


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_family_has_a_card(family, tmp_path):
    config = {"model_type": family.model_type, "architectures": [family.model]}
    example = "a ||| b" if family.card.pairs else "a"
    text = card_of(tmp_path, config, example=example)
    assert "license" not in text  # it is the user's
    assert ModelCard(card_of(tmp_path, config, example=example, license="cc-by-nc-4.0")).data.license == "cc-by-nc-4.0"
    assert f"- Architecture: `{family.model}` (`{family.model_type}`), 0.0 MB of weights\n- Training data:" in text
    assert f"import {family.auto}," in text
    assert text.startswith("---\n")
    assert text.endswith(".\n")
    assert "\n\n\n" not in text


QUOTES = """say "l'œuvre" \\n {{ x }} `$HOME` ||| '''it'''"""


def test_an_example_may_have_any_character(tmp_path):
    text = card_of(tmp_path, {"model_type": "attncal_bart"}, example=QUOTES)
    (literal,) = re.findall(r"tokenizer\(\[(.*)\], return_tensors", python_example(text))
    assert eval(literal) == QUOTES
    text = card_of(tmp_path, {"model_type": "mask_align"}, example=QUOTES)
    (literal,) = re.findall(r"for side in (.*)\.split", python_example(text))
    assert eval(literal) == QUOTES
    (command,) = re.findall(r"^echo (.*) \| attncal align run me/model$", text, re.MULTILINE)
    shell = subprocess.run(["sh", "-c", f"printf %s {command}"], capture_output=True, encoding="utf-8", check=True)
    assert shell.stdout == QUOTES


def test_the_example_of_a_translation_model_runs(folder):
    card = card_of(folder, model_name=str(folder), example='the "old" house')
    assert run(python_example(card)).startswith("[")


def test_link_probabilities_have_a_section_that_is_rewritten(tmp_path):
    before = probability_score([[0.9] * 10], [[True] * 6 + [False] * 4])
    after = probability_score([[0.5] * 10], [[True] * 6 + [False] * 4])
    (tmp_path / "README.md").write_text("# A card\n", encoding="utf-8")
    scores = {"before": before, "after": after}
    path = write_section(tmp_path, "link_probabilities", **scores, measured_on="two pairs")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# A card\n")
    assert "Measured on two pairs, 10 links of which\n60.0 % are right" in text
    assert "| expected calibration error, % | 30.0 | 10.0 |" in text
    write_section(tmp_path, "link_probabilities", **scores, measured_on="three pairs")
    text = path.read_text(encoding="utf-8")
    assert text.count("## Link probabilities") == text.count("three pairs") == 1


SIZES = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2, "ffn_dim": 8}


@pytest.mark.parametrize(
    ("model", "stated", "not_stated"),
    [
        (lambda: HMMAlignModel(HMMAlignConfig(vocab_size=30)), "Liang et al.", "Mask-Align"),
        (
            lambda: MaskAlignModel(MaskAlignConfig(vocab_size=30, **SIZES, lowercase=True)),
            "- `lowercase`: `True`",
            "pipeline_tag",
        ),
    ],
    ids=["counts", "network"],
)
def test_the_card_of_an_aligner(tmp_path, model, stated, not_stated):
    model().save_pretrained(tmp_path)
    train_bpe_tokenizer(["a house", "ein haus"] * 2, vocab_size=30).save_pretrained(tmp_path)
    assert inspect_folder(tmp_path).problems == ()
    text = card_of(tmp_path, example="a ||| b")
    assert "word-alignment" in text
    assert stated in text
    assert not_stated not in text
    assert "echo 'a ||| b' | attncal align run me/model" in text
    code = python_example(text).replace('"me/model"', repr(str(tmp_path)))
    assert "torch.Size([1, " in run(f"{code}\nprint(output.forward_attention.shape)")


@pytest.mark.parametrize("example", ["a house", "a|||b", "a ||| b ||| c"])
def test_the_example_of_an_aligner_must_be_a_pair(tmp_path, example):
    with pytest.raises(ValueError, match=r"`example`.*`source \|\|\| target`.*got '"):
        card_of(tmp_path, {"model_type": "mask_align"}, example=example)


# ---- of an adapter ----


def test_an_adapters_second_save_replaces_its_section_and_nothing_else(tmp_path):
    path = tmp_path / "README.md"
    AttentionCalibrationConfig(calibration="gated", revision="0123abc").save_pretrained(tmp_path)
    first = path.read_text(encoding="utf-8")
    assert first.startswith(f"---\nlibrary_name: peft\n---\n\n{CARD_START}\n## Attention-calibration adapter\n\n")
    assert "- Revision of the base model: 0123abc\n- `calibration`: `gated`\n\n" in first
    assert "KeyError: 'ATTNCAL'" in first
    assert "license" not in first

    path.write_text(first.replace(CARD_START, f"Before.\n\n{CARD_START}") + "\nAfter.\n", encoding="utf-8")
    settings = {"calibration": None, "leaky": True, "null_bias": -2.0, "base_model_name_or_path": "me/base"}
    for _ in range(2):
        AttentionCalibrationConfig(**settings).save_pretrained(tmp_path)
        second = path.read_text(encoding="utf-8")
        assert second.count(CARD_START) == second.count(CARD_END) == 1
        assert "Before." in second.partition(CARD_START)[0]
        assert second.endswith(f"{CARD_END}\nAfter.\n")
        assert "- Base model: `me/base`" in second
        assert "- `calibration`: `None`\n- `leaky`: `True`\n- `null_bias`: `-2.0`\n\n" in second
        assert "0123abc" not in second


def test_words_after_a_deleted_mark_stay(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"Before.\n{CARD_START}\nold\n\nMine.\n", encoding="utf-8")
    AttentionCalibrationConfig().save_pretrained(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert "Before." in text
    assert "Mine." in text
