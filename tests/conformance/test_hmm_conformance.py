"""transformers' own conformance suite on the aligner that counts: a model of tables, without a parameter or a loss.

What Marian runs and this model does not is listed below, test by test, with the reason; `conftest.py` turns any
further skip into a failure.
"""

import unittest
import unittest.mock

import stock_cases  # the module and not its classes, which would be collected here once more
import torch
from testers import CommonMixin, NewModelMixin, outlived_reasons, since_5_24
from transformers.testing_utils import torch_device
from upstream import ConfigTester, modeling

from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

NO_ATTENTIONS = "it has no attention"
NO_LAYERS = "it has no layers, and gives out no hidden states"
NO_EMBEDDINGS = "it has no embeddings: a token is the number of a row in a table"
NO_TRAINING = "it has no gradients: tests/training/test_counting.py tests how it learns"
TINY = {"vocab_size": 99, "entries": 30, "max_jump": 3, "max_position_embeddings": 50, "pad_token_id": 1}


class HMMAlignModelTester:
    """The attributes and methods that `ModelTesterMixin` reads; every pair has padding on one of its sides."""

    is_training = False
    batch_size = 6
    seq_length = 7
    num_hidden_layers = 0
    num_attention_heads = 1
    hidden_size = 1
    vocab_size = TINY["vocab_size"]
    pad_token_id = TINY["pad_token_id"]

    def get_config(self):
        return HMMAlignConfig(**TINY)

    def prepare_config_and_inputs_for_common(self):
        inputs = {}
        for parity, (name, length) in enumerate((("", self.seq_length), ("target_", self.seq_length - 2))):
            ids = torch.randint(4, self.vocab_size, (self.batch_size, length), device=torch_device)
            ids[parity::2, -1] = self.pad_token_id
            inputs |= {f"{name}input_ids": ids, f"{name}attention_mask": ids.ne(self.pad_token_id).long()}
        return self.get_config(), inputs


class HMMAlignTest(NewModelMixin, CommonMixin, unittest.TestCase):
    stock_test_case = stock_cases.StockMarianTest
    all_model_classes = (HMMAlignModel,)
    has_attentions = False
    test_resize_embeddings = False
    own_skips = {
        "test_attention_outputs": NO_ATTENTIONS,
        "test_can_set_attention_dynamically": NO_ATTENTIONS,
        "test_eager_matches_sdpa_inference": NO_ATTENTIONS,
        "test_sdpa_can_dispatch_non_composite_models": NO_ATTENTIONS,
        "test_capture_outputs_decorator": NO_LAYERS,
        "test_hidden_states_output": NO_LAYERS,
        "test_retain_grad_hidden_states_attentions": NO_LAYERS,
        "test_inputs_embeds": NO_EMBEDDINGS,
        "test_model_get_set_embeddings": NO_EMBEDDINGS,
        "test_resize_tokens_embeddings": NO_EMBEDDINGS,
        "test_resize_embeddings_untied": NO_EMBEDDINGS,
        "test_resize_embeddings_untied_no_reinit_on_post_init": NO_EMBEDDINGS,
        "test_encoder_decoder_loss_no_double_shift": NO_TRAINING,
        "test_enable_input_require_grads_with_gradient_checkpointing": NO_TRAINING,
        "test_training": NO_TRAINING,
        "test_training_gradient_checkpointing": NO_TRAINING,
        "test_training_gradient_checkpointing_use_reentrant_false": NO_TRAINING,
        "test_training_gradient_checkpointing_use_reentrant_true": NO_TRAINING,
    } | since_5_24(test_bc_cache_name_forward="it has no cache", test_multimodal_outputs_are_returned=NO_ATTENTIONS)

    def setUp(self):
        self.model_tester = HMMAlignModelTester()
        super().setUp()

    @unittest.skip(NO_LAYERS)
    def test_hidden_states_output(self):
        pass

    @unittest.skip(NO_LAYERS)
    def test_retain_grad_hidden_states_attentions(self):
        pass

    @unittest.skip(NO_EMBEDDINGS)
    def test_model_get_set_embeddings(self):
        pass

    def test_config(self):
        common = {"has_text_modality": False, "common_properties": ["vocab_size"]}
        ConfigTester(self, config_class=HMMAlignConfig, **common, **TINY).run_common_tests()

    def test_model_forward_default_config_values(self):
        """Upstream runs it for the classes of one list of names only, and training tests for the others only."""
        names = {**modeling.MODEL_MAPPING_NAMES, HMMAlignConfig.model_type: HMMAlignModel.__name__}
        with unittest.mock.patch.object(modeling, "MODEL_MAPPING_NAMES", names):
            super().test_model_forward_default_config_values()


class OwnSkipsTest(unittest.TestCase):
    def test_no_reason_outlives_its_skip(self):
        self.assertEqual(outlived_reasons(HMMAlignTest), [])
