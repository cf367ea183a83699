"""Copying in each model that has it, against slow loops in float64, with gradients; and in all of `generate()`."""

import pytest
import torch
from helpers import (
    CALIBRATIONS,
    FAMILIES,
    TINY,
    assert_close,
    assert_gradients_close,
    assert_identical,
    check_gradient_checkpointing,
    enable_checkpointing,
    gradients,
    is_mask_network,
    padded_pairs,
    scatter,
)
from huggingface_hub.errors import StrictDataclassError
from luong_helpers import tiny_luong
from reference_copying import copy_probabilities, loss_of_step, scaled, word_probabilities
from transformers import AutoModelForSeq2SeqLM

from hf_attncal.models.copying import Choices, mixture
from hf_attncal.models.cross_attention import AttentionContext

V, E, UNK = 11, 3, 3
A, B = V, V + 1  # slots: another word in every source
# Sources with a word that comes twice, with one, two and no words of their own; targets that copy them, or not.
PAIRS = [([4, A, 7, A, B, 2], [6, A, B, 7, 2]), ([A, 2], [9, A, 2]), ([5, 8, 5, 2], [UNK, 5, 2])]
FAMILY_NAMES = [*FAMILIES, "luong"]
SETTINGS = {
    "plain": {},
    "leaky": {"leaky": True},
    **CALIBRATIONS,
    "gated, leaky": {"calibration": "gated", "leaky": True},
    "gated, renormalized": {"calibration": "gated", "renormalize": True},
    "output gate": {"output_gate": True},
    "gated, output gate": {"calibration": "gated", "output_gate": True},
}


def build(family: str, **settings) -> torch.nn.Module:
    settings = {"copy": True, "max_copied_tokens": E, "unk_token_id": UNK, **settings}
    if family == "luong":
        return tiny_luong(**settings)
    if settings["copy"]:
        settings = {"copy_layer": 0, "copy_head": 1, **settings}  # not those of a default
    _, _, config_class, model_class = FAMILIES[family]
    torch.manual_seed(3)
    model = model_class(config_class(**TINY | settings)).double()
    scatter(model)
    return model


def batch_of(pairs, left: bool = False) -> dict[str, torch.Tensor]:
    """Return padded pairs, with slots only in `extended_input_ids`."""
    batch = padded_pairs(pairs, left)
    extended = batch["input_ids"]
    return batch | {"extended_input_ids": extended, "input_ids": extended.masked_fill(extended >= V, UNK)}


def sources_of(batch) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


def slow_probabilities(model, batch, pairs, perturb: bool = False) -> list[list[tuple[list[torch.Tensor], ...]]]:
    """P of every word and of copying every token, by pair and step, from the bare model's attention and states.

    With their graph.
    """
    labels = batch["labels"]
    targets = labels != -100 if model.config.calibration else None
    context = AttentionContext(perturb=perturb, target_mask=targets, record_details=True)
    read = model.prepare_decoder_input_ids_from_labels(labels)
    outputs = model.model(
        batch["input_ids"],
        attention_mask=batch["attention_mask"],
        decoder_input_ids=read.masked_fill(read >= V, UNK),
        attention_context=context,
        output_attentions=True,
    )
    layer, head = model.config.layer_of_copies, model.config.copy_head
    logits = model._logits(outputs.last_hidden_state)
    gate = model.copying.gate.weight, model.copying.gate.bias
    found = []
    for n, (source, target) in enumerate(pairs):
        real = batch["attention_mask"][n].bool()
        states = outputs.encoder_last_hidden_state[n, real]
        steps = []
        for step in range(len(target)):
            weights = list(outputs.cross_attentions[layer][n, head, step, real])
            mass = 1 - context.null_attentions[layer][n, head, step] if model.config.leaky else 1.0
            if getattr(model.config, "attention_window", "global") == "global":
                weights = scaled(weights, mass)
            state = outputs.last_hidden_state[n, step]
            copied = copy_probabilities(state, weights, states, gate)
            steps.append((word_probabilities(logits[n, step], copied, source, E), copied))
        found.append(steps)
    return found


def slow_loss(model, batch, pairs, perturb: bool = False) -> torch.Tensor:
    """Cross-entropy per target token."""
    probabilities, smoothing = slow_probabilities(model, batch, pairs, perturb), model.config.label_smoothing
    losses = [
        loss_of_step(words, label, smoothing, V)
        for (_, target), steps in zip(pairs, probabilities, strict=True)
        for label, (words, _) in zip(target, steps, strict=True)
    ]
    return sum(losses) / len(losses)


# ---- the mixture and its losses ----


@pytest.mark.third("family", "switches", "left")
@pytest.mark.parametrize("left", [False, True], ids=["padding behind", "padding in front"])
@pytest.mark.parametrize("switches", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_probabilities_loss_and_gradients(family: str, switches: dict, left: bool):
    """Checked in one batch with sources that have different unknown words."""
    model, batch = build(family, label_smoothing=0.1, **switches), batch_of(PAIRS, left)
    outputs = model(**batch, compute_mask_loss=False, output_copy_probabilities=True)
    with torch.no_grad():
        alike = model(**batch)
    assert alike.copy_probabilities is None
    assert_close(alike.logits, outputs.logits.detach(), 1e-12)
    assert_close(alike.nmt_loss, outputs.nmt_loss, 1e-12)
    outputs.loss.backward()
    found = gradients(model)
    model.zero_grad()

    for n, steps in enumerate(slow_probabilities(model, batch, PAIRS)):
        present = torch.tensor([word < V or word in PAIRS[n][0] for word in range(V + E)])
        real = batch["attention_mask"][n].bool()
        for step, (probabilities, copied) in enumerate(steps):
            assert_close(outputs.copy_probabilities[n, step, real], torch.stack(copied), 1e-12)
            assert (outputs.copy_probabilities[n, step, ~real] == 0).all()
            slow = torch.stack([torch.as_tensor(p, dtype=torch.float64) for p in probabilities])
            assert_close(outputs.logits[n, step].exp(), slow, 1e-12)
            assert_close(outputs.logits[n, step, present], slow[present].log(), 1e-11)
            assert slow.sum().item() == pytest.approx(1.0)
    expected = slow_loss(model, batch, PAIRS)
    expected.backward()
    assert_close(outputs.loss.detach(), expected.detach(), 1e-12)
    theirs = gradients(model)
    assert_gradients_close(found, {name: theirs[name] for name in found}, 1e-11)
    assert found["copying.gate.weight"].abs().max() > 1e-3


@pytest.mark.half("family", "switches")
@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("switches", [s for s in SETTINGS.values() if "calibration" in s], ids=str)
def test_the_two_objectives_stay_exact(family: str, switches: dict):
    """The mask network learns from perturbed copies, all others from calibrated ones."""
    model, batch = build(family, label_smoothing=0.1, mask_penalty=0.0, **switches).train(), batch_of(PAIRS)
    outputs = model(**batch)
    outputs.loss.backward()
    found = gradients(model)
    model.zero_grad()
    perturbed = slow_loss(model, batch, PAIRS, perturb=True)
    assert_close(outputs.mask_loss, -perturbed.detach(), 1e-12)
    slow = [slow_loss(model, batch, PAIRS), -perturbed]
    names, parameters = zip(*[(n, p) for n, p in model.named_parameters() if n in found], strict=True)
    nmt, mask = (torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True) for loss in slow)
    expected = {n: b if is_mask_network(n) else a for n, a, b in zip(names, nmt, mask, strict=True)}
    assert_gradients_close(found, expected, 1e-11)
    assert any(is_mask_network(name) for name in found)
    # The copies matter to it: those of a model that hardly copies give another gradient.
    with torch.no_grad():
        model.copying.gate.bias.fill_(-30.0)
    model.zero_grad()
    model(**batch).loss.backward()
    other = gradients(model)
    assert any((other[n] - found[n]).norm() > 0.05 * found[n].norm() > 0 for n in found if is_mask_network(n))


@pytest.mark.parametrize("settings", [{"attention_window": "local-p"}, {"attention_window": "local-m"}], ids=str)
@pytest.mark.parametrize("fed", [False, True])
def test_windows(settings: dict, fed: bool):
    """The weight outside of a window is generated."""
    pairs = [(PAIRS[0][0], [6, 4, 7, 2]), (PAIRS[1][0], [9, 2])]  # what it leaves out cannot be a target
    model, batch = build("luong", input_feeding=fed, **settings), batch_of(pairs)
    outputs = model(**batch)
    assert_close(outputs.loss.detach(), slow_loss(model, batch, pairs).detach(), 1e-12)
    assert_close(outputs.logits.exp().sum(dim=-1), torch.ones(2, 4, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_gradients_of_the_mixture(smoothing: float):
    """Checked by finite differences, for log-probabilities and loss, apart and together; absent slots have none."""
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    generating = torch.rand(2, 3, dtype=torch.float64).log().requires_grad_()
    copied = torch.rand(2, 3, 4, dtype=torch.float64).requires_grad_()
    ids, labels = torch.tensor([[1, 4, 1, 4], [5, 2, 3, 2]]), torch.tensor([[1, 4, 0], [-100, 5, 2]])

    def both(logits, generating, copied):
        found, loss = mixture(logits, Choices(generating, copied), ids, 2, labels, smoothing)
        return found.masked_fill(found < -1e10, 0.0), loss

    for outputs in (lambda *inputs: both(*inputs)[0], lambda *inputs: both(*inputs)[1], both):
        assert torch.autograd.gradcheck(outputs, (logits, generating, copied))
    found, _ = mixture(logits, Choices(generating, copied), ids, 2)
    assert found[0, 0, 5] == torch.finfo(torch.float64).min


def test_nothing_overflows():
    """Weights that underflowed, of words with and without an embedding; logits far apart; rows without a target."""
    inputs = torch.tensor([[[0.0, -1e4, 5.0]]]), torch.full((1, 1), -1e-3), torch.zeros(1, 1, 3)
    logits, generating, copied = (tensor.requires_grad_() for tensor in inputs)
    choices, ids = Choices(generating, copied), torch.tensor([[3, 1, 2]])
    for label in (0, 1, 2, 3):
        found, loss = mixture(logits, choices, ids, 2, torch.tensor([[label]]), 0.1)
        assert loss.isfinite()
        for gradient in torch.autograd.grad(loss + found[..., :4].sum(), inputs):
            assert gradient.isfinite().all()
    assert mixture(logits, choices, ids, 2, torch.tensor([[-100]]), 0.1)[1] == 0


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_subwords_move_mass_only(family: str):
    """No slots: as wide as the vocabulary, and the tokens of the source themselves are copied."""
    pairs = [([4, 7, 4, 2], [7, 4, 2]), ([5, 2], [5, 2])]
    batch = batch_of(pairs)
    extended = batch.pop("extended_input_ids")
    model = build(family, max_copied_tokens=0, unk_token_id=None)
    outputs = model(**batch)
    assert outputs.logits.shape == (2, 3, V)
    assert_identical(model(**batch, extended_input_ids=extended).logits.detach(), outputs.logits.detach())
    with torch.no_grad():
        model.copying.gate.weight.zero_()
        model.copying.gate.bias.fill_(40.0)  # copy always
    probabilities = model(**batch).logits.exp()
    for n, (source, _) in enumerate(pairs):
        assert probabilities[n, :, sorted(set(source))].sum(dim=-1).min() > 1 - 1e-9


@pytest.mark.parametrize("family", FAMILIES)
def test_which_head(family: str):
    """Another head, and another layer, are other models; the weights of all layers but one need not be formed."""
    batch, found = batch_of(PAIRS), []
    for settings in ({}, {"copy_head": 0}, {"copy_layer": 1}, {"copy_layer": None}):
        for implementation in ("sdpa", "eager"):
            model = build(family, **settings)
            model.set_attn_implementation(implementation)
            found.append(model(**batch).logits.detach())
    for sdpa, eager in zip(found[::2], found[1::2], strict=True):
        assert_close(sdpa, eager, 1e-12)
    assert_identical(found[4], found[6])  # the top layer
    assert min((found[0] - found[2]).abs().max(), (found[0] - found[4]).abs().max()) > 1e-4
    model, formed = build(family), []
    for layer in model.model.decoder.layers:
        layer.encoder_attn.register_forward_hook(lambda _, __, output: formed.append(output[1] is not None))
    model(**batch)
    assert formed == [True, False]


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_dropout_is_not_copied(family: str):
    model = build(family).train()
    for module in model.modules():
        if hasattr(module, "switches"):
            module.dropout = 0.9
    assert_close(model(**batch_of(PAIRS)).logits.exp().sum(-1), torch.ones(3, 5, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_losses_of_micro_batches_add_up(family: str):
    """Gradient accumulation, and a batch against its pairs one by one."""
    model = build(family, calibration="gated").train()
    whole = model(**batch_of(PAIRS))
    whole.loss.backward()
    expected, targets = gradients(model), sum(len(target) for _, target in PAIRS)
    model.zero_grad()
    parts = [model(**batch_of([pair]), num_items_in_batch=targets) for pair in PAIRS]
    sum(part.loss for part in parts).backward()
    assert_gradients_close(gradients(model), expected)
    assert_close(sum(part.loss for part in parts).detach(), whole.loss.detach())


@pytest.mark.parametrize("switches", [{}, {"calibration": "gated", "leaky": True}, {"output_gate": True}], ids=str)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_parameter_learns(family: str, switches: dict):
    """Otherwise several processes would need to search for unused parameters."""
    model = build(family, **switches).train()
    model(**batch_of(PAIRS)).loss.backward()
    unused = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not unused


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing(family: str):
    check_gradient_checkpointing(build(family, calibration="gated"), batch_of(PAIRS))
    with pytest.raises(ValueError, match=r"`use_reentrant`.*False.*`copy=True`"):
        enable_checkpointing(build(family), {"use_reentrant": True})


# ---- the switch ----


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_without_it_nothing_changes(family: str):
    """The same weights under the same names, and the same outputs, as where nothing is copied."""
    off = build(family, copy=False, max_copied_tokens=0)
    on = build(family, max_copied_tokens=0)
    assert on.state_dict().keys() - off.state_dict().keys() == {"copying.gate.weight", "copying.gate.bias"}
    on.load_state_dict(off.state_dict(), strict=False)
    batch = batch_of(PAIRS)
    del batch["extended_input_ids"]
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] >= V, UNK)
    plain = off(**batch)
    on.copying = None
    assert_identical(on(**batch).logits.detach(), plain.logits.detach())
    assert_identical(on(**batch).loss.detach(), plain.loss.detach())


@pytest.mark.parametrize("switches", [{}, {"output_gate": True}], ids=str)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_saving_loading_resizing_and_switching_on(family: str, switches: dict, tmp_path):
    model, batch = build(family, **switches).float().eval(), batch_of(PAIRS)
    model.save_pretrained(tmp_path / "with")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "with")
    with torch.no_grad():  # a graph would keep the weights' size
        assert_close(loaded(**batch).logits.exp(), model(**batch).logits.exp(), 1e-6)
    loaded.resize_token_embeddings(V + 2)
    assert loaded.config.max_copied_tokens == E
    last = batch["input_ids"].masked_fill(batch["input_ids"] == UNK, V + 2 + E - 1)
    longer = sources_of(batch) | {"extended_input_ids": last}
    assert loaded(**longer, decoder_input_ids=torch.tensor([[2, V + 4]] * 3)).logits.shape == (3, 2, V + 2 + E)

    off = build(family, copy=False, max_copied_tokens=0).float()
    off.save_pretrained(tmp_path / "without")
    on = type(off).from_pretrained(tmp_path / "without", copy=True, max_copied_tokens=E, unk_token_id=UNK)
    assert on.copying.gate.weight.std() > 0.001
    assert (on.copying.gate.bias == 0).all()
    assert on(**batch).loss.isfinite()


@pytest.mark.processor
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_bfloat16(family: str):
    batch, expected = batch_of(PAIRS), build(family)(**batch_of(PAIRS)).loss.item()
    model = build(family, calibration="gated").bfloat16().train()
    outputs = model(**batch)
    assert outputs.logits.dtype == torch.float32
    outputs.loss.backward()
    assert all(g.isfinite().all() for g in gradients(model).values())
    assert build(family).bfloat16()(**batch).loss.item() == pytest.approx(expected, rel=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert build(family).float()(**batch).loss.item() == pytest.approx(expected, rel=0.05)


# ---- generation ----


@torch.no_grad()
def greedy_reference(model, inputs, steps: int) -> torch.Tensor:
    """Return the greedy output by full passes without a cache; slots are read as the unknown word."""
    tokens = torch.full((len(inputs["input_ids"]), 1), model.config.decoder_start_token_id)
    for _ in range(steps):
        known = tokens.masked_fill(tokens >= V, UNK)
        logits = model(**inputs, decoder_input_ids=known, use_cache=False).logits[:, -1]
        tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return tokens


def copying_model(family: str, **switches) -> torch.nn.Module:
    """A model that copies often, but not always, and never ends a sentence."""
    model = build(family, eos_token_id=None, **switches).eval()
    with torch.no_grad():
        model.copying.gate.bias.fill_(1.0)
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.third("family", "switches", "left")
@pytest.mark.parametrize("switches", [{}, {"calibration": "gated", "leaky": True}, {"output_gate": True}], ids=str)
@pytest.mark.parametrize("left", [False, True], ids=["padding behind", "padding in front"])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_greedy_search(family: str, left: bool, switches: dict):
    model = copying_model(family, **switches)
    inputs = sources_of(batch_of(PAIRS, left))
    expected = greedy_reference(model, inputs, 6)
    options = {"max_new_tokens": 6, "do_sample": False}
    assert_identical(model.generate(**inputs, **options), expected)
    assert_identical(model.generate(**inputs, **options, use_cache=False), expected)
    # By keyword or not, and one by one.
    ids, extended = inputs["input_ids"], inputs["extended_input_ids"]
    mask = inputs["attention_mask"]
    assert_identical(model.generate(ids, attention_mask=mask, extended_input_ids=extended, **options), expected)
    for n, pair in enumerate(PAIRS if family == "luong" or not left else []):  # Marian counts padding in front
        assert_identical(model.generate(**sources_of(batch_of([pair])), **options), expected[n : n + 1])
    if family != "luong":
        assert_identical(model.generate(**inputs, **options, cache_implementation="static"), expected)
    # A prefix that ends in a slot.
    prefix = torch.tensor([[2, A]] * 3)
    continued = model.generate(**inputs, decoder_input_ids=prefix, max_new_tokens=3, do_sample=False)
    known = model.generate(**inputs, decoder_input_ids=torch.tensor([[2, UNK]] * 3), max_new_tokens=3, do_sample=False)
    assert_identical(continued[:, 2:], known[:, 2:])


@pytest.mark.parametrize("switches", [{"calibration": "gated"}, {"output_gate": True, "leaky": True}], ids=str)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_beams_sampling_and_scores(family: str, switches: dict):
    model = copying_model(family, **switches)
    inputs = sources_of(batch_of(PAIRS))
    options = {"max_new_tokens": 5, "return_dict_in_generate": True, "output_scores": True, "length_penalty": 0.0}
    for chosen in ({"num_beams": 4, "num_return_sequences": 2}, {"do_sample": True, "num_return_sequences": 3}):
        torch.manual_seed(0)
        found = model.generate(**inputs, **options, **chosen)
        assert found.scores[0].shape[-1] == V + E
        rows = {name: t.repeat_interleave(chosen["num_return_sequences"], dim=0) for name, t in inputs.items()}
        with torch.no_grad():
            logs = model(**rows, decoder_input_ids=found.sequences[:, :-1]).logits
        picked = logs.gather(-1, found.sequences[:, 1:, None]).squeeze(-1)
        scores = model.compute_transition_scores(
            found.sequences, found.scores, getattr(found, "beam_indices", None), normalize_logits=True
        )
        if "do_sample" in chosen:
            assert_close(scores.double(), picked, 1e-5)
        else:
            scores = model.compute_transition_scores(found.sequences, found.scores, found.beam_indices)
            assert_close(scores.double(), picked, 1e-5)
            assert_close(found.sequences_scores.double(), picked.sum(dim=1), 1e-5)
        for row, sequence in enumerate(found.sequences.tolist()):
            source = PAIRS[row // chosen["num_return_sequences"]][0]
            assert all(token in source for token in sequence if token >= V)
        assert (found.sequences >= V).any()


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_copy_source_is_computed_once(family: str):
    """Before the first step, and once for the beams of a sentence."""
    model, inputs, sources = copying_model(family), sources_of(batch_of(PAIRS)), []
    model.copying.register_forward_pre_hook(lambda _, given: sources.append(given[2]))
    model.generate(**inputs, num_beams=4, max_new_tokens=3)
    assert len(sources) == 3
    assert all(source is sources[0] for source in sources)
    assert_identical(sources[0].ids, inputs["extended_input_ids"])
    # From states of the encoder, too.
    encoded = model.get_encoder()(inputs["input_ids"], attention_mask=inputs["attention_mask"])
    ours = {name: inputs[name] for name in ("attention_mask", "extended_input_ids")}
    options = {"num_beams": 4, "max_new_tokens": 5}
    found = model.generate(encoder_outputs=encoded, **ours, **options)
    assert_identical(found, model.generate(**inputs, **options))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_one_graph(family: str):
    """Nothing in a pass asks for the value of a tensor."""
    model, batch = build(family).eval(), batch_of(PAIRS)
    compiled = torch.compile(model.forward, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert_close(compiled(**batch).logits, model(**batch).logits)


# ---- what is refused ----


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_bad_input_is_refused(family: str):
    model, batch = build(family), batch_of(PAIRS)
    encoded = model.get_encoder()(batch["input_ids"], attention_mask=batch["attention_mask"])
    given = {"attention_mask": batch["attention_mask"], "labels": batch["labels"], "encoder_outputs": encoded}
    with pytest.raises(ValueError, match=r"`input_ids`.*`extended_input_ids`.*`copy`"):
        model(**given)
    with_ids = model(**given, extended_input_ids=batch["extended_input_ids"])
    assert_close(with_ids.loss.detach(), model(**batch).loss.detach())
    with pytest.raises(ValueError, match=r"`extended_input_ids`.*\(3, 6\)"):
        model(**batch | {"extended_input_ids": batch["extended_input_ids"][:, :4]})
    with pytest.raises(ValueError, match=r"`extended_input_ids`.*14.*got 14.*Raise"):
        model(**batch | {"extended_input_ids": batch["extended_input_ids"] + 2})
    with pytest.raises(ValueError, match=r"`extended_input_ids`.*14.*got -1.*padding"):
        model(**batch | {"extended_input_ids": batch["extended_input_ids"] - 3})
    for other in (A, 8):  # a slot, or another word, in place of 7
        mixed_up = batch["extended_input_ids"].masked_fill(batch["input_ids"] == 7, other)
        expected = f"must equal `input_ids` except for unknown words, got {other} for 7 at place 2 of row 0"
        for call, inputs in ((model, batch), (model.generate, sources_of(batch))):
            with pytest.raises(ValueError, match=expected):
                call(**inputs | {"extended_input_ids": mixed_up})
    with pytest.raises(ValueError, match=r"`input_ids`.*`extended_input_ids`.*`copy`"):
        model.generate(encoder_outputs=encoded)
    for row, label in ((1, B), (2, A), (0, V + E)):  # of another source; of none; beyond the slots
        labels = batch["labels"].clone()
        labels[row, 1] = label
        with pytest.raises(ValueError, match=rf"`labels`.*got {label} .*row {row}"):
            model(**batch | {"labels": labels})
    with pytest.raises(ValueError, match=r"`output_copy_probabilities`.*`generate`"):
        model.generate(**sources_of(batch), output_copy_probabilities=True)
    with pytest.raises(ValueError, match=r"`assistant_model` must be None.*`prompt_lookup_num_tokens`"):
        model.generate(**sources_of(batch), assistant_model=model)
    off = build(family, copy=False, max_copied_tokens=0)
    with pytest.raises(ValueError, match=r"`output_copy_probabilities`.*`copy`"):
        off(batch["input_ids"], labels=batch["input_ids"], output_copy_probabilities=True)
    with pytest.raises(ValueError, match=r"`extended_input_ids`.*`copy`"):
        off(**batch)


def test_vocabularies_that_differ_are_refused():
    sizes = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 9, "tie_word_embeddings": False}
    with pytest.raises(StrictDataclassError, match=r"`copy`.*`share_encoder_decoder_embeddings=True`.*got False"):
        build("marian", **sizes)


def test_recurrent_models_need_attention_and_have_one_head():
    with pytest.raises(StrictDataclassError, match=r"`copy`.*`attention_window`.*got None"):
        build("luong", attention_window=None, input_feeding=False)
    with pytest.raises(StrictDataclassError, match=r"`copy_head`.*0.*0.*got 1"):
        build("luong", copy_head=1)
