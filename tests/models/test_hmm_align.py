"""The word aligner that counts, against every alignment of tiny pairs; what is loaded, saved and refused."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import reference
import torch
from helpers import assert_close, assert_identical, batch_of_pairs, largest_difference
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel
from warm import warm

from hf_attncal.alignment import WordAligner
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.functional_jumps import initial_jumps
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

PROGRAM = Path(__file__).with_name("load_counts_without_package.py")
TINY = {"vocab_size": 9, "max_jump": 2, "lexical_prior": 0.05, "null_probability": 0.2, "uniform_jump": 0.15}
TINY["identical_prior"] = 0.3
# Of different lengths, with tokens that occur twice, and jumps further than `max_jump`.
PAIRS = [([4, 7, 3, 4], [6, 8, 6]), ([5, 8], [3, 3, 2, 5]), ([5], [2]), ([1, 2, 3], [7])]
FIELDS = ("forward_attention", "backward_attention", "forward_null", "backward_null", "log_likelihood")
BUFFERS = {"pairs", "counts", "source_counts", "target_counts", "source_null_counts", "target_null_counts"}
BUFFERS |= {"forward_jumps", "backward_jumps"}


def tiny_model(dtype: torch.dtype = torch.float64, **config) -> HMMAlignModel:
    """Random counts of about a third of all pairs of tokens, totals that are larger, and random tables of jumps."""
    generator = torch.Generator().manual_seed(4)

    def random(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    fields = TINY | config
    size = fields["vocab_size"]
    pairs = (random(size * size) < 0.4).nonzero()[:, 0]
    model = HMMAlignModel(HMMAlignConfig(**fields | {"entries": len(pairs)})).double()
    model.pairs.copy_(pairs)
    model.counts.copy_(2 + 5 * random(len(pairs)))
    for side, places in (("source", pairs // size), ("target", pairs % size)):
        # More than the sum: the least counts have been left out.
        getattr(model, f"{side}_counts").copy_(1 + torch.zeros(size).double().index_add(0, places, model.counts))
        getattr(model, f"{side}_null_counts").copy_(1 + 3 * random(size))
    for direction in ("forward", "backward"):
        getattr(model, f"{direction}_jumps").copy_(0.1 + random(2 * fields["max_jump"] + 1))
    return model.to(dtype).eval()


def counts_of(model: HMMAlignModel) -> dict[tuple[int, int], float]:
    size = model.config.vocab_size
    return {
        (pair // size, pair % size): n for pair, n in zip(model.pairs.tolist(), model.counts.tolist(), strict=True)
    }


def slow_twin(model: HMMAlignModel) -> reference.SlowHMM:
    sides = [
        [getattr(model, f"{side}_{name}").tolist() for side in ("source", "target")]
        for name in ("counts", "null_counts")
    ]
    jumps = [model.forward_jumps.tolist(), model.backward_jumps.tolist()]
    return reference.SlowHMM(model.config, counts_of(model), *sides, jumps)


batch_of = partial(batch_of_pairs, vocab_size=TINY["vocab_size"])


def assert_equals_reference(found: torch.Tensor, expected: list, what: str) -> None:
    """Assert that one pair equals the reference, with 0 at padding."""
    expected = torch.tensor(expected, dtype=torch.float64)
    real = tuple(slice(n) for n in expected.shape)
    assert_close(found[real], expected, 1e-12, what)
    outside = found.clone()
    outside[real] = 0
    assert not outside.any(), what


# ---- alignment ----


@pytest.mark.parametrize("uniform", [0.0, 0.15, 1.0])
def test_alignments_equal_the_sum_over_all(uniform):
    model = tiny_model(uniform_jump=uniform)
    output, twin = model(**batch_of(PAIRS)), slow_twin(model)
    for n, (source, target) in enumerate(PAIRS):
        forward, backward = twin.both(source, target)
        assert_equals_reference(output.forward_attention[n], forward["weights"], "forward")
        assert_equals_reference(output.backward_attention[n], backward["weights"], "backward")
        assert_equals_reference(output.forward_null[n], forward["null"], "forward NULL")
        assert_equals_reference(output.backward_null[n], backward["null"], "backward NULL")
        expected = [forward["log_likelihood"], backward["log_likelihood"]]
        assert output.log_likelihood[n].tolist() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("uniform", "weight"), [(None, 1.0), (1.0, 1.0), (None, 0.4)])
def test_the_counts_of_a_pair_are_subtracted_for_itself(uniform, weight):
    """From the counts of token pairs, of tokens, and of NULL, which gets the rest of a token."""
    model, batch = tiny_model(), batch_of(PAIRS)
    generator = torch.Generator().manual_seed(1)
    cells = batch["target_attention_mask"][:, :, None] * batch["attention_mask"][:, None, :]
    # Sums of a row above 1 too: the mean of the directions has them, and NULL gets nothing then.
    own = 0.7 * torch.rand(cells.shape, generator=generator, dtype=torch.float64) * cells
    assert own.sum(dim=2).max() > 1
    assert own.sum(dim=1).max() > 1
    source, target = batch["input_ids"], batch["target_input_ids"]
    masks = batch["attention_mask"].bool(), batch["target_attention_mask"].bool()
    # Every pair of tokens has been counted here: no count may become less than 0.
    counts = 1 + model.counts_of(source, target)
    found = model.posteriors(counts, source, target, *masks, own, uniform, count=True, weight=weight)
    without = model.posteriors(counts, source, target, *masks, None, uniform)
    assert largest_difference(found[0].weights, without[0].weights) > 0.01
    twin = slow_twin(model)
    twin.weight = weight
    twin.counts = {(x, y): 1 + twin.counts.get((x, y), 0.0) for x in range(9) for y in range(9)}
    tables = [{"jumps": 0.0, "chances": 0.0} for _ in range(2)]
    for n, (source, target) in enumerate(PAIRS):
        directions = twin.both(source, target, own[n, : len(target), : len(source)].tolist(), uniform)
        for output, expected, table in zip(found, directions, tables, strict=True):
            assert_equals_reference(output.weights[n], expected["weights"], "weights")
            assert_equals_reference(output.null[n], expected["null"], "NULL")
            assert float(output.log_likelihood[n]) == pytest.approx(expected["log_likelihood"], abs=1e-10)
            for name in table:
                table[name] = table[name] + torch.tensor(expected[name], dtype=torch.float64)
    for output, table in zip(found, tables, strict=True):
        for name, expected in table.items():
            assert_close(getattr(output, name), expected, 1e-11, name)


@pytest.mark.parametrize("uniform", [None, 1.0])
def test_a_factor_stands_at_its_place(uniform):
    """A factor applies to one pair of tokens in a sentence, not to all equal ones; NULL has none."""
    model, batch = tiny_model(), batch_of(PAIRS)
    factor = 4 * torch.rand(len(PAIRS), 4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    source, target = batch["input_ids"], batch["target_input_ids"]
    masks = batch["attention_mask"].bool(), batch["target_attention_mask"].bool()
    counts, twin = model.counts_of(source, target), slow_twin(model)
    found = model.posteriors(counts, source, target, *masks, None, uniform, count=True, factor=factor)
    tables = [{"jumps": 0.0, "chances": 0.0} for _ in range(2)]
    for n, (source, target) in enumerate(PAIRS):
        places = factor[n, : len(target), : len(source)].tolist()
        for output, expected, table in zip(
            found, twin.both(source, target, None, uniform, places), tables, strict=True
        ):
            assert_equals_reference(output.weights[n], expected["weights"], "weights")
            assert_equals_reference(output.null[n], expected["null"], "NULL")
            assert float(output.log_likelihood[n]) == pytest.approx(expected["log_likelihood"], abs=1e-10)
            for name in table:
                table[name] = table[name] + torch.tensor(expected[name], dtype=torch.float64)
    for output, table in zip(found, tables, strict=True):
        for name, expected in table.items():
            assert_close(getattr(output, name), expected, 1e-11, name)
    if uniform is None:  # and the model itself takes it
        assert_identical(model(**batch, factor=factor).forward_attention, found[0].weights, "forward")
        without = model(**batch)
        assert_identical(model(**batch, factor=torch.ones_like(factor)).forward_null, without.forward_null, "1")
        assert largest_difference(without.forward_attention, found[0].weights) > 0.01


def test_nothing_added_is_not_the_same_as_not_counted():
    """Shares of 0 say that the tokens were counted as unaligned, whatever else is in the batch."""
    model, batch = tiny_model(), batch_of(PAIRS[:1])
    source, target = batch["input_ids"], batch["target_input_ids"]
    masks = batch["attention_mask"].bool(), batch["target_attention_mask"].bool()
    counts = model.counts_of(source, target)
    forward, backward = model.posteriors(counts, source, target, *masks, torch.zeros_like(counts))
    expected = slow_twin(model).both(*PAIRS[0], [[0.0] * 4] * 3)
    assert_equals_reference(forward.null[0], expected[0]["null"], "forward")
    assert_equals_reference(backward.null[0], expected[1]["null"], "backward")


def test_counts_are_found_by_their_pair_of_tokens():
    model, batch = tiny_model(), batch_of(PAIRS)
    found, counts = model.counts_of(batch["input_ids"], batch["target_input_ids"]), counts_of(model)
    assert found.shape == (len(PAIRS), 4, 4)
    known = 0
    for n, t, s in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
        pair = int(batch["input_ids"][n, s]), int(batch["target_input_ids"][n, t])
        assert float(found[n, t, s]) == counts.get(pair, 0.0)
        known += pair in counts
    assert 0 < known < found.numel()
    # Before the first entry and behind the last one.
    last = torch.tensor([[8]])
    model.config.entries, model.pairs, model.counts = 1, torch.tensor([8 * 9 + 7]), torch.ones(1).double()
    assert model.counts_of(last, last).item() == 0
    assert model.counts_of(torch.tensor([[0]]), last).item() == 0
    assert model.counts_of(last, torch.tensor([[7]])).item() == 1


def test_a_vocabulary_whose_pairs_no_float_can_hold():
    size = 2_000_000
    model = HMMAlignModel(HMMAlignConfig(vocab_size=size, entries=2))
    model.pairs.copy_(torch.tensor([size * size - 2, size * size - 1]))
    model.counts.copy_(torch.tensor([5.0, 7.0]))
    found = model.counts_of(torch.tensor([[size - 1]]), torch.tensor([[size - 1, size - 2, size - 3]]))
    assert found.flatten().tolist() == [7, 5, 0]


@pytest.mark.parametrize(
    ("name", "value", "shape"),
    [
        ("input_ids", None, "None"),
        ("target_input_ids", None, "None"),
        ("input_ids", torch.zeros(2, 0, dtype=torch.long), "(2, 0)"),
        ("target_input_ids", torch.zeros(0, 3, dtype=torch.long), "(0, 3)"),
        ("input_ids", torch.tensor([3, 4]), "(2,)"),
    ],
)
def test_a_side_that_is_missing_or_empty_is_named(name, value, shape):
    inputs = {"input_ids": torch.tensor([[3]]), "target_input_ids": torch.tensor([[4]])} | {name: value}
    with pytest.raises(ValueError, match=rf"`{name}`.*\(batch, tokens\).*got {re.escape(shape)}"):
        tiny_model()(**inputs)


# ---- configuration ----


def test_a_bad_value_is_an_error_with_its_reason():
    message = "`symmetrization` must be one of .*'harmonic'.*, got 'both'"
    with pytest.raises(StrictDataclassError, match=message):
        HMMAlignConfig(symmetrization="both")
    config = HMMAlignConfig()
    config.symmetrization = "both"
    with pytest.raises(StrictDataclassError, match=message):
        HMMAlignModel(config)


# ---- saving and loading ----


def test_a_saved_model_is_the_same_model(tmp_path):
    model = tiny_model(lowercase=True, symmetrization="intersection", alignment_threshold=0.3)
    model.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == BUFFERS
    assert AutoConfig.from_pretrained(tmp_path).to_dict() | {"_name_or_path": ""} == model.config.to_dict()
    for loaded in (AutoModel.from_pretrained(tmp_path), HMMAlignModel.from_pretrained(tmp_path)):
        assert type(loaded) is HMMAlignModel
        assert (loaded.dtype, loaded.device.type) == (torch.float64, "cpu")
        for name, tensor in model.state_dict().items():
            assert_identical(loaded.state_dict()[name], tensor, name)
        expected, found = model(**batch_of(PAIRS)), loaded(**batch_of(PAIRS))
        for name in FIELDS:
            assert_identical(found[name], expected[name], name)


def test_a_model_without_counts_can_be_saved(tmp_path):
    HMMAlignModel(HMMAlignConfig(**TINY)).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert len(loaded.pairs) == 0
    assert_identical(loaded.forward_jumps, initial_jumps(TINY["max_jump"]))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02), (torch.float16, 2e-3)]
)
def test_types(tmp_path, dtype, tolerance):
    """Counts lose digits, pairs of tokens none; alignments are computed in float32 or better."""
    model = tiny_model()
    model.save_pretrained(tmp_path)
    loaded = HMMAlignModel.from_pretrained(tmp_path, dtype=dtype)
    assert loaded.dtype == loaded.source_counts.dtype == loaded.forward_jumps.dtype == dtype
    assert loaded.pairs.dtype == torch.long
    assert torch.equal(loaded.pairs, model.pairs)
    expected, found = model(**batch_of(PAIRS)), loaded(**batch_of(PAIRS))
    for name in FIELDS[:4]:
        assert found[name].dtype == torch.float32
        assert_close(found[name].double(), expected[name], tolerance, name)


def test_counts_beyond_the_range_of_a_type_are_refused(tmp_path):
    model = tiny_model()
    model.source_counts[3] = 1e6
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"`source_counts`.*not finite.*float16"):
        HMMAlignModel.from_pretrained(tmp_path, dtype=torch.float16)


@pytest.mark.parametrize("name", sorted(BUFFERS))
def test_a_missing_table_is_refused(tmp_path, name):
    tiny_model().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"lacks weights.*{name}"):
        HMMAlignModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", sorted(BUFFERS - {"pairs"}))
def test_a_table_that_is_not_finite_is_refused(tmp_path, name, value):
    model = tiny_model()
    getattr(model, name)[2] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"`{name}`.*not finite"):
        HMMAlignModel.from_pretrained(tmp_path)


def test_missing_tables_are_those_of_a_new_model(tmp_path):
    """With `output_loading_info=True` the caller decides; no weight is random."""
    model = tiny_model()
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    missing = {"target_counts", "backward_jumps", "source_null_counts"}
    save_file({k: v for k, v in tensors.items() if k not in missing}, tmp_path / "model.safetensors", {"format": "pt"})
    loaded, report = HMMAlignModel.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == missing
    fresh = HMMAlignModel(HMMAlignConfig(**TINY)).double().state_dict()
    for name, tensor in loaded.state_dict().items():
        assert_close(tensor, fresh[name] if name in missing else tensors[name], 1e-7, name)


# ---- without the package ----


@pytest.fixture(scope="module")
def without_package(tmp_path_factory):
    """Return the model, the output of a process without this package, and the folder."""
    root = tmp_path_factory.mktemp("counts")
    model = tiny_model(torch.float32)
    model.save_pretrained(root / "here")
    request = {"folder": str(root / "here"), "destination": str(root / "there")}
    request["inputs"] = {name: tensor.tolist() for name, tensor in batch_of(PAIRS).items()}
    environment = {"HF_HOME": str(root), "HF_MODULES_CACHE": str(root / "modules"), "HF_HUB_OFFLINE": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "PATH": ""}
    command = warm([sys.executable, "-W", "error::FutureWarning", PROGRAM, json.dumps(request)], "bare")
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    *_, answer = run.stdout.splitlines()
    return model, json.loads(answer), root


def test_it_aligns_where_the_package_is_not_installed(without_package):
    model, answer, _ = without_package
    output = model(**batch_of(PAIRS))
    for name in FIELDS:
        assert torch.tensor(answer[name]).allclose(output[name], atol=1e-6), name


@pytest.mark.parametrize("place", ["here", "there"])
def test_the_folder_ships_its_code_and_no_other(without_package, place):
    folder = without_package[2] / place
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    assert {name: reference.rpartition("--")[2] for name, reference in auto_map.items()} == {
        "AutoConfig": "configuration_hmm_align.HMMAlignConfig",
        "AutoModel": "modeling_hmm_align.HMMAlignModel",
    }
    assert {path.name for path in folder.glob("*.py")} == {
        "configuration_hmm_align.py",
        "functional_jumps.py",
        "hmm_tables.py",
        "limits.py",
        "loading.py",
        "modeling_hmm_align.py",
    }


# ---- the aligner over it ----

TEXT = ["the old house is a small house", "das alte Haus ist ein kleines Haus", "b z"]
DICTIONARY = {"the": "das", "old": "alte", "house": "Haus", "is": "ist", "a": "ein", "small": "kleines"}


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe_tokenizer(TEXT * 3, vocab_size=90)


def aligner_of(tokenizer, dictionary=DICTIONARY, **config) -> WordAligner:
    """Return an aligner that links every token of a dictionary word to its translation."""
    size, counts = len(tokenizer), {}
    for pair in dictionary.items():
        sides = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in pair]
        counts |= {source * size + target: 9.0 for source in sides[0] for target in sides[1]}
    fields = {"vocab_size": size, "entries": len(counts), "pad_token_id": tokenizer.pad_token_id}
    model = HMMAlignModel(HMMAlignConfig(**fields | config))
    model.pairs.copy_(torch.tensor(sorted(counts)))
    model.counts.copy_(torch.tensor([counts[pair] for pair in sorted(counts)]))
    model.source_counts.index_add_(0, model.pairs // size, model.counts)
    model.target_counts.index_add_(0, model.pairs % size, model.counts)
    return WordAligner(model, tokenizer)


def test_it_links_words_and_names_those_without(tokenizer):
    (found,) = aligner_of(tokenizer).align([("the old house b", "z das Haus alte")])
    assert found.links == ((0, 1), (1, 3), (2, 2))
    assert all(score > 0.5 for score in found.scores)
    assert [null > 0.5 for null in found.source_null] == [False, False, False, True]
    assert [null > 0.5 for null in found.target_null] == [True, False, False, False]
    assert found.symmetrization == "harmonic"
    assert json.loads(json.dumps(found.to_dict()))["links"] == [[0, 1], [1, 3], [2, 2]]


# ---- words that one side never had ----


def test_a_token_that_a_side_never_had_is_probably_itself():
    """Whatever it was counted with, and not before anything is counted."""
    model = tiny_model()
    for name, token in (("source", 3), ("target", 5), ("target", 7)):
        for table in (f"{name}_counts", f"{name}_null_counts"):
            getattr(model, table)[token] = 0
    pairs = [([3, 5, 7], [5, 3, 7]), ([4, 8], [8, 4]), ([7, 2], [6, 1])]
    output, twin = model(**batch_of(pairs)), slow_twin(model)
    for n, pair in enumerate(pairs):
        forward, backward = twin.both(*pair)
        assert_equals_reference(output.forward_attention[n], forward["weights"], "forward")
        assert_equals_reference(output.backward_attention[n], backward["weights"], "backward")
        assert_equals_reference(output.backward_null[n], backward["null"], "backward NULL")
    assert twin.emissions([4, 3], [3], 0, None)[0][0][1] == pytest.approx(0.5 * (1 - model.config.null_probability))
    twin.foreign = lambda side, token: False
    other = torch.tensor(twin.both(*pairs[0])[0]["weights"], dtype=torch.float64)
    assert largest_difference(output.forward_attention[0, :3, :3], other) > 0.01
    model.config.identical_prior = 0.0
    output, twin = model(**batch_of(pairs)), slow_twin(model)
    assert_equals_reference(output.forward_attention[0], twin.both(*pairs[0])[0]["weights"], "without the prior")
    fresh = HMMAlignModel(HMMAlignConfig(**TINY)).eval()
    assert not fresh._foreign("source", torch.arange(9), torch.ones(9, dtype=torch.bool)).any()


# ---- words as they are looked up ----


def test_the_same_text_on_both_sides_is_its_own_translation(tokenizer, monkeypatch):
    """Nothing was counted: only that tokens are identical can tell, also where numbers change places."""
    aligner = aligner_of(tokenizer, identical_prior=0.1, fold_words=True)
    text = "the house is old and the dog runs"
    (found,) = aligner.align([(text, text)])
    assert found.links == tuple((i, i) for i in range(8))
    (plain,) = aligner_of(tokenizer).align([(text, text)])
    assert plain.links != found.links
    # What was often counted with words of the other language, and with NULL, is no other text than that.
    aligner.model.source_counts *= 1000
    aligner.model.source_null_counts.copy_(aligner.model.source_counts)
    assert aligner.align([(text, text)])[0].links == found.links
    monkeypatch.setattr(HMMAlignModel, "_foreign", lambda self, side, tokens, real: tokens < 0)
    assert len(aligner.align([(text, text)])[0].links) < 8
    numbers = aligner_of(train_bpe_tokenizer(["12 34 56 78"] * 3, vocab_size=60), {}, identical_prior=0.1)
    (found,) = numbers.align([("12 34 56 78", "56 12 78 34")])
    assert found.links == ((0, 1), (1, 3), (2, 0), (3, 2))


def test_folded_words_are_looked_up_and_given_back_as_they_were(tokenizer):
    aligner = aligner_of(tokenizer, identical_prior=0.1, fold_words=True)
    (folded,) = aligner.align([("The House", "the house")])
    assert (folded.source, folded.links) == (("The", "House"), ((0, 0), (1, 1)))
    (other,) = aligner_of(tokenizer, identical_prior=0.1).align([("THE HOUSE", "the house")])
    assert other.scores != folded.scores


def test_a_no_break_space_shifts_nothing_for_those_who_split_at_spaces(tokenizer):
    aligner = aligner_of(tokenizer, identical_prior=0.1, fold_words=True)
    pair = ("the\u00a0dog house", "the\u00a0dog house")
    (at_spaces,) = aligner.align([pair], words="spaces", spans=True)
    assert (at_spaces.source, at_spaces.links) == (("the\u00a0dog", "house"), ((0, 0), (1, 1)))
    assert at_spaces.source_spans == ((0, 7), (8, 13))
    assert len(aligner.align([pair])[0].source) == 3
    assert aligner.align([(["the\u00a0dog", "house"], ["\u00a0"])], words="spaces")[0].target == ("\u00a0",)
    with pytest.raises(ValueError, match="white space"):
        aligner.align([(["the\u00a0dog"], ["a"])])
    with pytest.raises(ValueError, match="`words` must be one of"):
        aligner.align([pair], words="tabs")
