"""Limits are identities: with switches off or at neutral values ours is the stock model; and its checkpoints."""

import copy

import pytest
import torch
from helpers import (
    CALIBRATIONS,
    FAMILIES,
    SWITCHES,
    TINY,
    assert_close,
    assert_gradients_close,
    assert_identical,
    gradients,
    tiny_batch,
    tiny_model,
    tiny_stock_model,
)
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

DROPOUT = {"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3}


def twins(family, implementation="sdpa", dtype=torch.float64, **config):
    """A stock model and ours of the same weights."""
    stock = tiny_stock_model(family, dtype, **{k: v for k, v in config.items() if k in DROPOUT})
    ours = tiny_model(family, dtype, **config)
    missing, unexpected = ours.load_state_dict(stock.state_dict(), strict=False)
    assert not unexpected
    assert all("encoder_attn." in name for name in missing)
    for model in (stock, ours):
        model.set_attn_implementation(implementation)
    return stock, ours


def logits(model, seed: int = 4):
    torch.manual_seed(seed)
    return model(**tiny_batch()).logits.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
class TestAllOff:
    @pytest.mark.half("family", "implementation", "training", "dtype")
    def test_logits_to_the_bit(self, family, implementation, training, dtype):
        """Also in training with dropout, which draws the same random numbers at the same positions."""
        stock, ours = twins(family, implementation, dtype, **DROPOUT)
        stock.train(training)
        ours.train(training)
        assert_identical(logits(ours), logits(stock))
        if training:
            assert (logits(ours, seed=1) - logits(ours, seed=2)).abs().max() > 0, "no dropout"

    @pytest.mark.half("family", "implementation", "training", "dtype")
    def test_a_fresh_output_gate_to_the_bit(self, family, implementation, training, dtype):
        """Its factor is exactly 1 at first; and it has gradients."""
        stock, ours = twins(family, implementation, dtype, output_gate=True, **DROPOUT)
        gates = [layer.encoder_attn.output_gate for layer in ours.model.decoder.layers]
        for gate in gates:
            gate.init_parameters()
        stock.train(training)
        ours.train(training)
        assert_identical(logits(ours), logits(stock))
        ours(**tiny_batch()).loss.backward()
        assert all(parameter.grad.abs().max() > 0 for gate in gates for parameter in gate.parameters())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
class TestNeutral:
    def test_gradients_of_all_off_are_those_of_stock(self, family, implementation):
        stock, ours = twins(family, implementation)
        losses = []
        for model in (stock, ours):
            model.train()
            losses.append(model(**tiny_batch()).loss)
            losses[-1].backward()
        assert_close(losses[1].detach(), losses[0].detach())
        assert_gradients_close(gradients(ours), gradients(stock))

    def test_fixed_with_weight_zero(self, family, implementation):
        stock, ours = twins(family, implementation, calibration="fixed", calibration_weight=0, **DROPOUT)
        for training in (False, True):
            stock.train(training)
            ours.train(training)
            if implementation == "eager":
                assert_identical(logits(ours), logits(stock))
            elif not training:  # the fused kernel draws its dropout elsewhere
                assert_close(logits(ours), logits(stock))

    def test_annealed_at_step_zero(self, family, implementation):
        stock, ours = twins(family, implementation, calibration="annealed", annealing_steps=10)
        ours.set_annealing_step(0)
        compare = assert_identical if implementation == "eager" else assert_close
        compare(logits(ours.eval()), logits(stock.eval()))
        ours.set_annealing_step(1)
        assert (logits(ours) - logits(stock)).abs().max() > 1e-6

    def test_gate_wide_open(self, family, implementation):
        stock, ours = twins(family, implementation, calibration="gated")
        for layer in ours.model.decoder.layers:
            torch.nn.init.constant_(layer.encoder_attn.gate.bias, 1e3)
        assert_close(logits(ours.eval()), logits(stock.eval()))

    def test_null_at_minus_infinity(self, family, implementation):
        """The first coordinate of every query is made 1, so that one key puts the NULL score where we want it."""
        stock, ours = twins(family, implementation, leaky=True)
        head_dim = TINY["d_model"] // TINY["decoder_attention_heads"]
        for model in (stock, ours):
            for layer in model.model.decoder.layers:
                with torch.no_grad():
                    layer.encoder_attn.q_proj.weight[::head_dim] = 0.0
                    layer.encoder_attn.q_proj.bias[::head_dim] = 1.0
        assert (logits(ours.eval()) - logits(stock.eval())).abs().max() > 1e-4
        for layer in ours.model.decoder.layers:
            with torch.no_grad():
                layer.encoder_attn.null.key.zero_()[:, 0] = -1e9
        assert_close(logits(ours), logits(stock))

    @pytest.mark.half("family", "calibration", "leaky")
    @pytest.mark.parametrize("calibration", CALIBRATIONS)
    @pytest.mark.parametrize("leaky", [False, True])
    def test_renormalized_with_zero_query_projection(self, family, implementation, calibration, leaky):
        """A constant mask calibrates nothing: `a_comb = a`, whatever the rest of the new parameters is."""
        switches = {"leaky": leaky}
        _, plain = twins(family, implementation, **switches)
        calibrated = {"calibration": calibration, "renormalize": True, "annealing_steps": 10}
        _, ours = twins(family, implementation, **calibrated, **switches)
        ours.load_state_dict(plain.state_dict(), strict=False)
        assert (logits(ours.eval()) - logits(plain.eval())).abs().max() > 1e-6
        for layer in ours.model.decoder.layers:
            torch.nn.init.zeros_(layer.encoder_attn.mask_network.query_weight)
        assert_close(logits(ours), logits(plain))

    def test_gumbel_at_inference_ignores_the_temperature(self, family, implementation):
        _, hot = twins(family, implementation, gumbel=True, gumbel_temperature=50.0)
        _, cold = twins(family, implementation, gumbel=True, gumbel_temperature=0.01)
        assert_identical(logits(hot.eval()), logits(cold.eval()))


class TestStockCheckpoints:
    """`from_pretrained` on a folder that transformers' own class saved."""

    @pytest.fixture
    def stock(self, family):
        # Wide enough for the standard deviation of new parameters to mean something.
        wide = {"d_model": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
        return tiny_stock_model(family, torch.float32, **wide).eval()

    @pytest.fixture
    def folder(self, stock, tmp_path):
        stock.save_pretrained(tmp_path / "stock")
        return tmp_path / "stock"

    @staticmethod
    def load(family, folder, **options):
        model, info = FAMILIES[family][3].from_pretrained(folder, output_loading_info=True, **options)
        return model, info

    @pytest.mark.half("family", "switches")
    @pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
    def test_stock_weights_bit_for_bit_and_only_the_new_ones_initialised(self, family, stock, folder, switches):
        model, info = self.load(family, folder, **switches)
        loaded = model.state_dict()
        for name, tensor in stock.state_dict().items():
            assert_identical(loaded[name], tensor, name)
        new = loaded.keys() - stock.state_dict().keys()
        assert set(info["missing_keys"]) == new
        assert not info["unexpected_keys"]
        assert all("encoder_attn." in name for name in new)
        assert bool(new) == (switches != {"gumbel": True})
        for name, tensor in loaded.items():
            assert torch.isfinite(tensor).all(), name

    def test_new_parameters_have_their_initial_values(self, family, folder):
        # Freed memory full of 1e30 would show if a parameter were left as it was allocated.
        rubbish = [torch.full((64, 64), 1e30) for _ in range(50)]
        del rubbish
        gated, _ = self.load(family, folder, calibration="gated", leaky=True, output_gate=True)
        for layer in gated.model.decoder.layers:
            attention = layer.encoder_attn
            for weight in attention.mask_network.parameters():
                assert float(weight.detach().std()) == pytest.approx(gated.config.init_std, rel=0.1)
                assert abs(float(weight.detach().mean())) < 3 * gated.config.init_std / 64
            for parameter in (*attention.gate.parameters(), *attention.output_gate.parameters()):
                assert (parameter == 0).all()
            for parameter in (attention.null.key, attention.null.value):
                assert float(parameter.detach().std()) == pytest.approx(64**-0.5, rel=0.3)
        annealed, _ = self.load(family, folder, calibration="annealed", renormalize=True)
        assert annealed.annealing_step == 0
        for layer in annealed.model.decoder.layers:
            assert (layer.encoder_attn.mask_network.query_weight == 0).all()
            assert layer.encoder_attn.mask_network.key_weight.std() > 0
        leaky, _ = self.load(family, folder, leaky=True, null_key_std=3.0)
        assert float(leaky.model.decoder.layers[0].encoder_attn.null.key.detach().std()) == pytest.approx(3.0, rel=0.3)

    def test_it_computes_the_stock_model(self, family, stock, folder):
        ours, _ = self.load(family, folder)
        assert_identical(logits(ours.eval()), logits(stock))
        for calibration in CALIBRATIONS:
            fresh, _ = self.load(family, folder, calibration=calibration, renormalize=True)
            assert_close(logits(fresh.eval()), logits(stock), tolerance=1e-5)

    def test_its_calibration_learns(self, family, folder):
        """With `renormalize` the query projection starts at 0; it must still get a gradient."""
        model, _ = self.load(family, folder, calibration="gated", renormalize=True)
        model.train()(**tiny_batch()).loss.backward()
        for layer in model.model.decoder.layers:
            assert layer.encoder_attn.mask_network.query_weight.grad.abs().max() > 0

    def test_saved_again_it_loads_with_the_auto_classes(self, family, folder, tmp_path):
        model, _ = self.load(family, folder, calibration="annealed", leaky=True)
        model.set_annealing_step(123_456)
        model.save_pretrained(tmp_path / "ours")
        _, _, config_class, model_class = FAMILIES[family]
        loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
        assert type(loaded) is model_class
        assert type(AutoConfig.from_pretrained(tmp_path / "ours")) is config_class
        assert type(AutoModel.from_pretrained(tmp_path / "ours")) is type(model.model)
        assert loaded.annealing_step == 123_456
        for name, tensor in model.state_dict().items():
            assert_identical(loaded.state_dict()[name], tensor, name)
        assert_identical(logits(loaded.eval()), logits(model.eval()))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_the_annealing_step_does_not_depend_on_the_precision(self, family, folder, tmp_path, dtype):
        """bfloat16 has no 150,001; the step is an integer."""
        model, _ = self.load(family, folder, calibration="annealed", dtype=dtype)
        model.set_annealing_step(150_001)
        model.save_pretrained(tmp_path / "ours")
        assert FAMILIES[family][3].from_pretrained(tmp_path / "ours", dtype=dtype).annealing_step == 150_001
        assert copy.deepcopy(model).to(torch.float32).annealing_step == 150_001

    def test_fixed_position_tables_stay_fixed(self, family, stock, folder):
        """Loading makes them trainable in stock Marian; DDP then stops at their missing gradients."""
        model, _ = self.load(family, folder, calibration="gated")
        for part in (model.model.encoder, model.model.decoder):
            assert part.embed_positions.weight.requires_grad == (family == "bart")
        model.train()(**tiny_batch()).loss.backward()
        unused = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
        assert not unused
