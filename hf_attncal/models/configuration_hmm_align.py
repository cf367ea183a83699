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
"""Configuration of the statistical (HMM) word aligner."""

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .hmm_tables import CountFields
from .limits import check_counting


@strict
class HMMAlignConfig(CountFields, PreTrainedConfig):
    """Configuration of `HMMAlignModel`: hidden Markov models of both directions, trained to agree (Liang et al. 2006).

    Args:
        vocab_size: size of the vocabulary that both languages share.
        entries: number of pairs of a source and a target token with a count; 0 before training.
        max_jump: W, longest jump with its own weight. Longer jumps have the weight of W.
        uniform_jump: share of jumps with a uniform distribution, in [0, 1].
        null_probability: probability that a token is aligned to NULL, in (0, 1).
        lexical_prior: pseudo-count of every pair of tokens (Dirichlet), > 0.
        identical_prior: additional pseudo-count of a pair of identical tokens, >= 0.
        max_position_embeddings: maximum number of tokens per side in one pass. Longer texts are read in windows.
        alignment_threshold: score above which two words are linked.
        symmetrization: default method that merges the two directions.
        lowercase: True if text is lower-cased before tokenisation, in training and alignment.
        tokenize: True if raw text is first split into words (Unicode's word boundaries), in training and alignment.
        fold_words: True if words are folded (case, quotes, dashes, widths, digits), in training and alignment.

    Raises:
        StrictDataclassClassValidationError, StrictDataclassFieldValidationError: a value is outside its range or of
            another type; the message names the field, the rule and the value.
    """

    _auto_class = "AutoConfig"

    def validate_hmm_align(self):
        """Part of the `@strict` validation of configurations; models do it again before they are built."""
        check_counting(self)
