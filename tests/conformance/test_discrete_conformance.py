"""transformers' own conformance suite on the Discrete Transformer: no skip that stock Marian does not have.

With two streams a test that gives embeddings in place of tokens gives those of both streams.
"""

import functools
import unittest
import unittest.mock

import stock_cases  # the module and not its classes, which would be collected here once more
import torch
from testers import TINY, CommonMixin, ConformanceMixin, NewModelMixin, Seq2SeqModelTester
from transformers import MarianConfig, MarianForCausalLM
from upstream import ConfigTester, GenerationTesterMixin, announce, modeling

from hf_attncal import (
    DiscreteTransformerConfig,
    DiscreteTransformerForCausalLM,
    DiscreteTransformerForConditionalGeneration,
    DiscreteTransformerModel,
)

announce("discrete_transformer", DiscreteTransformerModel, DiscreteTransformerForConditionalGeneration)
modeling.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = {
    **modeling.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "discrete_transformer_causal": DiscreteTransformerForCausalLM.__name__,
}


class OneStreamTest(NewModelMixin, ConformanceMixin, unittest.TestCase):
    stock_test_case = stock_cases.StockMarianTest
    config_class = DiscreteTransformerConfig
    all_model_classes = (DiscreteTransformerModel, DiscreteTransformerForConditionalGeneration)


def patched(model_class: type, change):
    """`forward` of a class as `change(model, forward, kwargs)`."""
    forward = model_class.forward

    @functools.wraps(forward)
    def wrapper(self, *args, **kwargs):
        return change(self, functools.partial(forward, self, *args), kwargs)

    return unittest.mock.patch.object(model_class, "forward", wrapper)


def with_syntactic_embeddings(model, forward, kwargs):
    """Beside the embeddings that a test gives, those that the same tokens have in the syntactic stream."""
    stacks = {"": model.model} if hasattr(model, "lm_head") else {"": model.encoder, "decoder_": model.decoder}
    for prefix, stack in stacks.items():
        given = kwargs.get(f"{prefix}inputs_embeds")
        if given is not None:
            tokens = (given.unsqueeze(-2) == stack.embed_tokens.weight).all(dim=-1).long().argmax(dim=-1)
            kwargs[f"{prefix}inputs_embeds"] = torch.cat([given, stack.syntactic_embed_tokens(tokens)], dim=-1)
    return forward(**kwargs)


def without_syntactic_states(model, forward, kwargs):
    """The one output that a second stream adds, which upstream's count of them does not know."""
    outputs = forward(**kwargs)
    assert outputs.encoder_syntactic_last_hidden_state.shape == outputs.encoder_last_hidden_state.shape
    kept = {name: value for name, value in outputs.items() if name != "encoder_syntactic_last_hidden_state"}
    return type(outputs)(**kept)


class TwoStreamsMixin:
    switches = {"streams": 2}
    takes_embeddings: type

    def test_inputs_embeds(self):
        with patched(self.takes_embeddings, with_syntactic_embeddings):
            super().test_inputs_embeds()

    def test_inputs_embeds_matches_input_ids(self):
        with patched(self.takes_embeddings, with_syntactic_embeddings):
            super().test_inputs_embeds_matches_input_ids()


class TwoStreamsTest(TwoStreamsMixin, OneStreamTest):
    takes_embeddings = DiscreteTransformerModel

    def test_attention_outputs(self):
        for model_class in self.all_model_classes:
            self.all_model_classes = (model_class,)
            with patched(model_class, without_syntactic_states):
                super().test_attention_outputs()


class CausalModelTester(Seq2SeqModelTester):
    """Tester of a decoder without an encoder, whose only inputs are tokens and their mask."""

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        config.is_decoder, config.is_encoder_decoder = True, False
        return config, {name: inputs[name] for name in ("input_ids", "attention_mask")}


class CausalMixin(CommonMixin, GenerationTesterMixin):
    """Whole suite for a decoder without an encoder."""

    is_encoder_decoder = False
    config_class: type
    switches: dict = {}

    def setUp(self):
        self.model_tester = CausalModelTester(self.config_class, self.switches)
        super().setUp()

    def test_config(self):
        ConfigTester(self, config_class=self.config_class, **TINY, **self.switches).run_common_tests()


class StockCausalTest(CausalMixin, unittest.TestCase):
    """For what it skips. It fails where gradients are checkpointed: its cross-attention has no gradient."""

    __test__ = False
    config_class = MarianConfig
    all_model_classes = (MarianForCausalLM,)


class CausalOneStreamTest(NewModelMixin, CausalMixin, unittest.TestCase):
    __test__ = True
    repeats = True
    stock_test_case = StockCausalTest
    config_class = DiscreteTransformerConfig
    all_model_classes = (DiscreteTransformerForCausalLM,)


class CausalTwoStreamsTest(TwoStreamsMixin, CausalOneStreamTest):
    takes_embeddings = DiscreteTransformerForCausalLM
