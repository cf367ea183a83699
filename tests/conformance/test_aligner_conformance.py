"""transformers' own conformance suite on the word aligner: a model with two inputs, and no logits to label.

What Marian runs and the aligner does not is listed below, test by test, with the reason; `conftest.py` turns any
further skip into a failure.
"""

import unittest
import unittest.mock

import stock_cases  # the module and not its classes, which would be collected here once more
import torch
from testers import CommonMixin, NewModelMixin, outlived_reasons, since_5_24
from transformers.testing_utils import torch_device
from upstream import ConfigTester, modeling

from hf_attncal import MaskAlignConfig, MaskAlignModel

TINY = {
    "vocab_size": 99,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "attention_heads": 4,
    "ffn_dim": 8,
    "max_position_embeddings": 50,
    "pad_token_id": 1,
}
NO_ATTENTIONS = "its outputs are alignments, two matrices a pair, and not the attention of every layer"
KERNELS = f"{NO_ATTENTIONS}; tests/models/test_mask_align.py compares the two kernels"
NO_HIDDEN_STATES = "it does not give out hidden states"
RESIZING = "resizing the vocabulary is refused, which tests/models/test_mask_align.py tests"


class MaskAlignModelTester:
    """The attributes and methods that `ModelTesterMixin` reads; every pair has padding on one of its sides."""

    is_training = True
    batch_size = 6
    seq_length = 7
    num_hidden_layers = TINY["encoder_layers"]
    num_attention_heads = TINY["attention_heads"]
    hidden_size = TINY["d_model"]
    vocab_size = TINY["vocab_size"]
    pad_token_id = TINY["pad_token_id"]

    def __init__(self, switches: dict):
        self.switches = switches

    def get_config(self):
        return MaskAlignConfig(**TINY, **self.switches)

    def prepare_config_and_inputs_for_common(self):
        inputs = {}
        for parity, (name, length) in enumerate((("", self.seq_length), ("target_", self.seq_length - 2))):
            ids = torch.randint(4, self.vocab_size, (self.batch_size, length), device=torch_device)
            ids[parity::2, -1] = self.pad_token_id
            inputs |= {f"{name}input_ids": ids, f"{name}attention_mask": ids.ne(self.pad_token_id).long()}
        return self.get_config(), inputs


class MaskAlignMixin(NewModelMixin, CommonMixin):
    """The whole suite; `return_loss` stands for labels."""

    stock_test_case = stock_cases.StockMarianTest
    all_model_classes = (MaskAlignModel,)
    switches: dict = {}
    has_attentions = False
    test_resize_embeddings = False
    own_skips = {
        "test_attention_outputs": NO_ATTENTIONS,
        "test_eager_matches_sdpa_inference": KERNELS,
        "test_sdpa_can_dispatch_non_composite_models": NO_ATTENTIONS,
        "test_hidden_states_output": NO_HIDDEN_STATES,
        "test_retain_grad_hidden_states_attentions": NO_HIDDEN_STATES,
        "test_inputs_embeds": "a prediction needs the token itself, so it takes no embeddings instead of tokens",
        "test_resize_tokens_embeddings": RESIZING,
        "test_resize_embeddings_untied": RESIZING,
        "test_resize_embeddings_untied_no_reinit_on_post_init": RESIZING,
        "test_encoder_decoder_loss_no_double_shift": "it predicts hidden tokens in place, from no labels",
        "test_capture_outputs_decorator": "it records nothing inside its layers",
    } | since_5_24(test_bc_cache_name_forward="it has no cache", test_multimodal_outputs_are_returned=NO_ATTENTIONS)

    def setUp(self):
        self.model_tester = MaskAlignModelTester(self.switches)
        super().setUp()

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels)
        return inputs | ({"return_loss": True} if return_labels else {})

    @unittest.skip(NO_HIDDEN_STATES)
    def test_hidden_states_output(self):
        pass

    @unittest.skip(NO_HIDDEN_STATES)
    def test_retain_grad_hidden_states_attentions(self):
        pass

    def test_config(self):
        ConfigTester(self, config_class=MaskAlignConfig, **TINY, **self.switches).run_common_tests()

    def test_model_forward_default_config_values(self):
        """Upstream runs it for the classes of one list of names only, and training tests for the others only."""
        names = {**modeling.MODEL_MAPPING_NAMES, MaskAlignConfig.model_type: MaskAlignModel.__name__}
        with unittest.mock.patch.object(modeling, "MODEL_MAPPING_NAMES", names):
            super().test_model_forward_default_config_values()


class AttentionMaskAlignTest(MaskAlignMixin, unittest.TestCase):
    switches = {}


class MixtureMaskAlignTest(MaskAlignMixin, unittest.TestCase):
    switches = {"prediction": "mixture", "max_jump": 3, "diagonal_bias": 4.0}
    switches |= {"share_embeddings": True, "sampled_softmax": True}


class OwnSkipsTest(unittest.TestCase):
    def test_no_reason_outlives_its_skip(self):
        self.assertEqual(outlived_reasons(AttentionMaskAlignTest), [])
