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
"""Configuration of the Mask-Align word aligner."""

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .limits import SYMMETRIZATIONS, CheckedConfigMixin, check_choices, check_numbers, check_sizes

PREDICTIONS = ("attention", "mixture")
EMISSIONS = ("states", "embeddings")


# trf-ignore: TRF023 (`d_model` and `ffn_dim` are the names in Marian and BART)
@strict
class MaskAlignConfig(CheckedConfigMixin, PreTrainedConfig):
    """Configuration of `MaskAlignModel` (Mask-Align, Chen et al., ACL 2021). The defaults have the published size.

    Args:
        vocab_size: size of the vocabulary that both languages share.
        d_model: width of the states of each of the two directions.
        encoder_layers: number of encoder layers per direction.
        decoder_layers: number of decoder layers per direction.
        attention_heads: number of attention heads.
        ffn_dim: inner width of the feed-forward networks.
        activation_function: activation of the feed-forward networks.
        dropout: dropout of embeddings and of the output of every sub-layer.
        max_position_embeddings: maximum number of tokens per side. Positions are sinusoidal and have no weights.
        share_embeddings: True for one embedding table for both languages. If False, each language has its own, which
            one direction uses as input and the other as input and output.
        mask_diagonal: True to hide every target token from its own query (static-KV attention, sec. 3.1). If False,
            the model learns to copy; for the ablation, and for training only on given links.
        leaky: True for a NULL key and value in the cross-attention (sec. 3.2). If False, every token must be aligned.
        null_key_std: standard deviation of the initial NULL key and value. Default: `None`, `d_model ** -0.5`.
        prediction: prediction of a token. `"attention"` (the paper) predicts it from the attended values, and the
            attention is its alignment. `"mixture"` predicts it from each source token separately and mixes these
            predictions by the attention. Its alignment is the posterior of the mixture, which also uses the token
            itself. A mixture learns from far less text.
        emission: input of a source token's predictions in a `"mixture"`: `"states"` of the encoder, which include
            context, or only its own `"embeddings"`. With states a token can learn to predict the translation of its
            neighbour.
        max_jump: W, longest jump with its own weight in a first-order model over a `"mixture"`, in which the position
            of a link also depends on the previous one. It changes only the alignment, not the training of the
            weights. Default: `None`, each token is aligned separately.
        uniform_jump: share of the jumps that follow only the attention, in (0, 1]; 1 switches the jump table off.
        normalizer_penalty: weight of `mean(log Z ** 2)` over source tokens for `"mixture"`, with Z the normaliser of a
            source token's predictions. It keeps Z near 1, so that aligning needs no sum over the vocabulary.
        diagonal_bias: initial strength b of a learned preference for equal relative positions, per head: scores get
            `-b |t / T - s / S|`. Default: `None`, no such preference (the paper).
        sampled_softmax: True to train the output layer on the token types of the batch instead of the whole
            vocabulary, corrected for their frequency. Needs token counts (`set_token_counts`).
        label_smoothing: label smoothing of the prediction loss of `"attention"`, in [0, 1). A mixture has none.
        agreement_weight: alpha, weight of the agreement loss (sec. 3.3).
        entropy_weight: beta, weight of the entropy loss (sec. 3.3).
        entropy_smoothing: lambda of the entropy loss.
        guide_weight: weight of the loss of given links, in batches with links.
        init_std: standard deviation of initial matrices. Default: `None`, Xavier's uniform distribution.
        alignment_threshold: tau, score above which two words are linked (sec. 3.4).
        symmetrization: default method that merges the two directions.
        lowercase: True if text is lower-cased before tokenisation, in training and alignment.
        tokenize: True if raw text is first split into words (Unicode's word boundaries), in training and alignment.
        fold_words: True if words are folded (case, quotes, dashes, widths, digits), in training and alignment.

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
            raise ValueError(f"`max_jump` needs `prediction` 'mixture', got {self.prediction!r}. Set it to `None`.")
        check_numbers(self)
        if self.uniform_jump == 0:
            raise ValueError("`uniform_jump` must be in (0, 1], got 0.")
