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
"""Configuration of the word aligner that counts."""

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .hmm_tables import CountFields
from .limits import check_counting


@strict
class HMMAlignConfig(CountFields, PreTrainedConfig):
    """Configuration of `HMMAlignModel`: hidden Markov models of both directions that agree (Liang et al. 2006).

    Args:
        vocab_size: entries of the vocabulary that both languages share.
        entries: pairs of a source and a target token that have a count; 0 before anything is learned.
        max_jump: W: longest jump with a weight of its own; a longer one has that of W.
        uniform_jump: share of jumps that go anywhere, in [0, 1].
        null_probability: of a token to be aligned to NULL, in (0, 1).
        lexical_prior: of every pair of tokens, a count that is added (Dirichlet), > 0.
        identical_prior: of a token and itself, a count that is added to that, >= 0.
        max_position_embeddings: most tokens of a side that are read at once; longer ones are read in windows.
        alignment_threshold: link where the score is above it.
        symmetrization: how the two directions are merged unless asked otherwise.
        lowercase: text was lower-cased before it was tokenised, and is to be when aligned.
        tokenize: raw text was cut into words (Unicode's word boundaries) first, and is to be when aligned.
        fold_words: words were folded (case, quotes, dashes, widths, digits) before, and are to be when aligned.

    Raises:
        StrictDataclassClassValidationError, StrictDataclassFieldValidationError: a value is outside its range or of
            another type; the message names the field, the rule and the value.
    """

    _auto_class = "AutoConfig"

    def validate_hmm_align(self):
        """Part of the `@strict` validation of configurations; models do it again before they are built."""
        check_counting(self)
