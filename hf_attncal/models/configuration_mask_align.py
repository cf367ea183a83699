# Copyright 2026 The hf_attncal authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Configuration of the word aligner."""

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .limits import SYMMETRIZATIONS, CheckedConfigMixin, check_choices, check_numbers, check_sizes

PREDICTIONS = ("attention", "mixture")
EMISSIONS = ("states", "embeddings")


# trf-ignore: TRF023 (`d_model` and `ffn_dim` are the names in Marian and BART)
@strict
class MaskAlignConfig(CheckedConfigMixin, PreTrainedConfig):
    """Configuration of `MaskAlignModel` (Mask-Align, Chen et al., ACL 2021). The defaults are the published size.

    Args:
        vocab_size: entries of the vocabulary that both languages share.
        d_model, encoder_layers, decoder_layers, attention_heads, ffn_dim: size of each of the two directions.
        activation_function: of the feed-forward networks.
        dropout: of embeddings and of what every sub-layer adds.
        max_position_embeddings: largest number of tokens of a side. Positions are sinusoidal: it costs no weights.
        share_embeddings: one embedding table for both languages. Without it each language has its own, which one
            direction uses as input and the other as input and output.
        mask_diagonal: hide every target token from its own query (static-KV attention, sec. 3.1). Without it the model
            learns to copy; for the ablation, and for training on given links alone.
        leaky: a NULL key and value in the cross-attention (sec. 3.2). Without it every token must be aligned.
        null_key_std: standard deviation of the initial NULL key and value; `None` for `d_model ** -0.5`.
        prediction: `"attention"`: a token is predicted from the attention's mean over values, and the attention aligns
            it (the paper). `"mixture"`: a token is predicted by each source token apart, the predictions are mixed by
            the attention, and the posterior of the mixture aligns it: the attention says where the hidden token may
            come from, the posterior has seen the token. It learns from far less text.
        emission: what a source token predicts from in a `"mixture"`: `"states"`, the encoder's, which know its
            context, or `"embeddings"`, its own embedding alone. With states a token can learn to predict what its
            neighbour translates to.
        max_jump: align by a first-order model over a `"mixture"`: where a token is aligned depends on where the last
            one was, too, by a table with a weight for each jump of up to so many tokens in either direction. `None`:
            each token is aligned apart. It changes how a model aligns, not how its weights are trained.
        uniform_jump: share of the jumps that the attention chooses without the table, in (0, 1]; 1 is as no table.
        normalizer_penalty: weight of `mean(log Z ** 2)` over source tokens for `"mixture"`, with Z the normaliser of a
            source token's predictions. It keeps Z near 1, so that aligning needs no sum over the vocabulary.
        diagonal_bias: initial strength of a learned preference for equal relative positions, one number a head:
            scores get `-b |t / T - s / S|`. `None` for no such preference (the paper).
        sampled_softmax: train the output layer on the token types of the batch instead of the whole vocabulary, with
            the correction for their frequency; needs token counts (`set_token_counts`).
        label_smoothing: of the prediction loss of `"attention"`, in [0, 1); a mixture has none.
        agreement_weight: alpha, of the agreement loss (sec. 3.3).
        entropy_weight: beta, of the entropy loss (sec. 3.3).
        entropy_smoothing: lambda of the entropy loss.
        guide_weight: weight of the loss of given links, where a batch has some.
        init_std: standard deviation of initial matrices; `None` for Xavier's uniform distribution.
        alignment_threshold: tau: link where the score is above it (sec. 3.4).
        symmetrization: how the two directions are merged unless asked otherwise.
        lowercase: text was lower-cased before it was tokenised, and is to be when aligned.
        tokenize: raw text was cut into words (Unicode's word boundaries) first, and is to be when aligned.
        fold_words: words were folded (case, quotes, dashes, widths, digits) before, and are to be when aligned.

    Raises:
        StrictDataclassClassValidationError, StrictDataclassFieldValidationError: a value is outside its range or of
            another type; the message names the field, the rule and the value.
    """

    model_type = "mask_align"
    _auto_class = "AutoConfig"
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int = 36000
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    attention_heads: int = 4
    ffn_dim: int = 1024
    activation_function: str = "relu"
    dropout: float | int = 0.1
    max_position_embeddings: int = 512
    share_embeddings: bool = False
    mask_diagonal: bool = True
    leaky: bool = True
    null_key_std: float | int | None = None
    prediction: str = "attention"
    emission: str = "states"
    max_jump: int | None = None
    uniform_jump: float | int = 0.1
    normalizer_penalty: float | int = 0.1
    diagonal_bias: float | int | None = None
    sampled_softmax: bool = False
    label_smoothing: float | int = 0.1
    agreement_weight: float | int = 5.0
    entropy_weight: float | int = 1.0
    entropy_smoothing: float | int = 0.05
    guide_weight: float | int = 1.0
    init_std: float | int | None = None
    alignment_threshold: float | int = 0.2
    symmetrization: str = "harmonic"
    lowercase: bool = False
    tokenize: bool = False
    fold_words: bool = False
    pad_token_id: int | None = 0

    def validate_mask_align(self):
        """Part of the `@strict` validation of configurations; models do it again before they are built."""
        check_sizes(self)
        if self.d_model % (2 * self.attention_heads):
            raise ValueError(
                f"`d_model` must be a multiple of twice `attention_heads`, got {self.d_model} and "
                f"{self.attention_heads}."
            )
        choices = {"prediction": PREDICTIONS, "emission": EMISSIONS, "symmetrization": SYMMETRIZATIONS}
        check_choices(self, choices)
        if self.max_jump is not None and self.prediction != "mixture":
            raise ValueError(f"`max_jump` needs `prediction` 'mixture', got {self.prediction!r}: set it to `None`.")
        check_numbers(self)
        if self.uniform_jump == 0:
            raise ValueError("`uniform_jump` must be in (0, 1], got 0.")
