"""Tiny configurations and inputs of the test cases, for the mixins of `upstream.py`."""

import functools
import inspect
import re
import unittest
from contextlib import contextmanager

import torch
from transformers.testing_utils import torch_device
from upstream import ConfigTester, GenerationTesterMixin, ModelTesterMixin

# The names of Marian's and BART's configuration fields are the same.
TINY = {
    "vocab_size": 99,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
    "max_position_embeddings": 50,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}


class Seq2SeqModelTester:
    """The attributes and methods that `ModelTesterMixin` reads; one sentence in two has padding at its end."""

    is_training = True
    batch_size = 6
    seq_length = 7
    num_hidden_layers = TINY["decoder_layers"]
    num_attention_heads = TINY["decoder_attention_heads"]
    hidden_size = TINY["d_model"]
    vocab_size = TINY["vocab_size"]
    pad_token_id = TINY["pad_token_id"]

    def __init__(self, config_class: type, switches: dict):
        self.config_class = config_class
        self.switches = switches

    def get_config(self):
        return self.config_class(**TINY, **self.switches)

    def prepare_config_and_inputs_for_common(self):
        shape = (self.batch_size, self.seq_length)
        input_ids = torch.randint(4, self.vocab_size, shape, device=torch_device)
        input_ids[:, -1] = TINY["eos_token_id"]
        input_ids[1::2, -2] = TINY["eos_token_id"]
        input_ids[1::2, -1] = self.pad_token_id
        inputs = {
            "input_ids": input_ids,
            "attention_mask": input_ids.ne(self.pad_token_id).long(),
            "decoder_input_ids": torch.randint(4, self.vocab_size, shape, device=torch_device),
            "decoder_attention_mask": torch.ones(shape, dtype=torch.long, device=torch_device),
        }
        return self.get_config(), inputs


class CommonMixin(ModelTesterMixin):
    """Settings of the suite for `all_model_classes`; to be combined with `unittest.TestCase`."""

    # Before it knew frozen parameters, the suite asked for a gradient of Marian's positions too, also of stock Marian.
    test_all_params_have_gradient = "intentionally_frozen" in inspect.getsource(ModelTesterMixin)

    def setUp(self):
        self.skipped_parts = []
        # Upstream formats messages with whole tensors for every comparison, also for those that hold.
        torch.set_printoptions(threshold=1, edgeitems=1)
        self.addCleanup(torch.set_printoptions, profile="default")

    @contextmanager
    def subTest(self, message=None, **parameters):
        """Upstream opens one for each of hundreds of weights, and reporting each takes longer than testing it.

        Here a failed part is a failed test, and a test with a skipped part counts as skipped, in `tearDown`.
        """
        try:
            yield
        except unittest.SkipTest as skip:
            self.skipped_parts.append(str(skip))
        except Exception as error:
            error.add_note(f"in the part {message or ''} {parameters or ''}")
            raise

    def tearDown(self):
        super().tearDown()
        if self.skipped_parts:
            self.skipTest("; ".join(self.skipped_parts))


class ConformanceMixin(CommonMixin, GenerationTesterMixin):
    """The whole suite for translation models."""

    is_encoder_decoder = True
    config_class: type
    switches: dict = {}

    def setUp(self):
        self.model_tester = Seq2SeqModelTester(self.config_class, self.switches)
        super().setUp()

    def test_config(self):
        ConfigTester(self, config_class=self.config_class, **TINY, **self.switches).run_common_tests()


class NewModelMixin:
    """Additional tests for new models; to be placed before the mixin with the suite.

    Models from before 2023 need not, by the year on top of their configuration's file.
    """

    never_skipped = frozenset({"test_can_init_all_missing_weights"})


class OursMixin(NewModelMixin, ConformanceMixin):
    def test_training_gradient_checkpointing_use_reentrant_true(self):
        """Reentrant checkpointing loses gradients of what layers report: it has to be refused, not to go wrong."""
        if self.switches.get("calibration") is None and not self.switches.get("copy"):
            super().test_training_gradient_checkpointing_use_reentrant_true()
            return
        for model_class in self.all_model_classes:
            model = model_class(self.model_tester.get_config())
            for options in ({"use_reentrant": True}, {"preserve_rng_state": False}):  # True is torch's default
                with self.assertRaisesRegex(ValueError, "`use_reentrant` must be False"):
                    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
                    enable(options)
            self.assertFalse(any(getattr(module, "gradient_checkpointing", False) for module in model.modules()))


@functools.cache
def skips(test_case: type[unittest.TestCase], name: str) -> bool:
    """Run test `name` of `test_case`, and return True if it, or a part of it, is skipped."""
    result = unittest.TestResult()
    test_case(name).run(result)
    return bool(result.skipped)


def reason_of_its_own(test_case: type[unittest.TestCase], name: str) -> str | None:
    """Why `test_case` skips test `name` when the stock one runs it: from its `own_skips`, if it has any.

    A test that upstream runs with several parameters is listed once, without the number that follows its name.
    """
    reasons = getattr(test_case, "own_skips", {})
    return reasons.get(name) or reasons.get(re.sub(r"_\d+(_.*)?$", "", name))


def may_skip(test_case: type[unittest.TestCase], name: str) -> bool:
    """Return True if `test_case` may skip test `name`: it has a reason, or its `stock_test_case` skips it.

    None of its `never_skipped`.
    """
    if name in test_case.never_skipped:
        return False
    return bool(reason_of_its_own(test_case, name)) or skips(test_case.stock_test_case, name)


OWN_CACHE = "its cache is of another kind, whose names tests/models/test_caches.py tests"


def since_5_24(**reasons: str) -> dict[str, str]:
    """Return reasons to skip tests that transformers has from 5.24 on; none with an older one."""
    return reasons if hasattr(ModelTesterMixin, "test_bc_cache_name_forward") else {}


def outlived_reasons(test_case: type[unittest.TestCase]) -> list[str]:
    """The names in `own_skips` of `test_case` that belong to no test any more, or to one that runs now."""
    names = unittest.TestLoader().getTestCaseNames(test_case)
    tests = {listed: [n for n in names if re.fullmatch(rf"{listed}(_\d+.*)?", n)] for listed in test_case.own_skips}
    return [
        listed
        for listed, names in tests.items()
        if not names or not all(reason_of_its_own(test_case, n) and skips(test_case, n) for n in names)
    ]


# Upstream compares eager attention with SDPA in 24 settings. Every two values of two of them meet in the first six.
EVERY_TWO = (
    "fp16_pad_left_sdpa_kernels",
    "fp16_pad_right_no_attn_mask",
    "fp32_pad_left_no_attn_mask_sdpa_kernels",
    "fp32_pad_right",
    "bf16_pad_left",
    "bf16_pad_right_no_attn_mask_sdpa_kernels",
    "fp32_pad_left_output_attentions",
)


def is_repetition(test_case: type | None, name: str) -> bool:
    """Return True if a slow test, which loads models, only repeats the result of a class without switches.

    It does so with switches, and in a class that `repeats` another: BART's code is Marian's.
    """
    setting = re.fullmatch(r"test_eager_matches_sdpa_inference_\d+_(.*)", name)
    dear = name == "test_bc_torch_dtype" or (setting is not None and setting[1] not in EVERY_TWO)
    return dear and bool(getattr(test_case, "switches", None) or getattr(test_case, "repeats", False))
