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
"""Configuration of the recurrent encoder-decoders with Luong attention."""

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .configuration_attncal import AttnCalConfigMixin
from .limits import check_choices

CELLS = ("lstm", "gru")
DIRECTIONS = ("sum", "project")
SCORES = ("dot", "general", "concat", "location")
WINDOWS = ("global", "local-m", "local-p")


# trf-ignore: TRF023 (`d_model` is the name in Marian and BART)
@strict
class LuongConfig(AttnCalConfigMixin, PreTrainedConfig):
    __doc__ = f"""Configuration of `LuongModel` and `LuongForConditionalGeneration`; the defaults are the paper's size.

    Args:
        vocab_size: size of the vocabulary that both languages share.
        d_model: width of the states of encoder and decoder, per direction.
        embedding_size: width of the embeddings. Default: `None`, `d_model`.
        encoder_layers: number of encoder layers.
        decoder_layers: number of decoder layers. Counted from the top, each starts from the last state of the encoder
            layer at the same place; further ones start from the lowest encoder layer.
        cell: `"lstm"` or `"gru"`.
        bidirectional: True if the encoder reads in both directions.
        directions: method that merges the two directions in each layer: `"sum"` (UAM), or `"project"`, which
            concatenates them and projects them to `d_model`, with separate weights for outputs and last states.
        score: score function of attention: `"dot"`, `"general"`, `"concat"` or `"location"` (Luong et al., eqs. 8 and
            9).
        attention_window: source positions that attention sees: `"global"` (all), `"local-m"` (around the target
            position), `"local-p"` (around a predicted position), or `None`: no attention, the decoder gets only the
            encoder's last states.
        window_width: D of the local windows, which have 2 D + 1 source tokens.
        max_source_length: maximum number of source tokens for `score="location"`, whose weights have one row per
            token. It is also `max_position_embeddings`, for every score.
        input_feeding: True if the attentional state of a step is part of the next step's input.
        selective_gate: True for the selective gate of SEASS, which scales each encoder state given the whole sentence.
        dropout: dropout of embeddings, between layers, and of attentional states; sampled again at every step.
        share_embeddings: True if encoder and decoder share their embeddings.
        tie_word_embeddings: True if the output layer uses the decoder's embeddings. Needs `embedding_size` equal to
            `d_model`.
        init_range: bound of the uniform distribution of initial weights, [-init_range, init_range].

    `calibration`, `leaky` and `gumbel` need `attention_window="global"`, and `output_gate` an attention.

    {AttnCalConfigMixin.__doc__}"""

    model_type = "luong"
    _auto_class = "AutoConfig"  # the code is saved with the model
    keys_to_ignore_at_inference = ["past_key_values", "cache"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "decoder_layers",
        "max_position_embeddings": "max_source_length",
    }
    # There is one cross-attention with one head, however many layers there are.
    num_decoder_layers = 1
    num_attention_heads = 1

    vocab_size: int = 50000
    d_model: int = 1000
    embedding_size: int | None = None
    encoder_layers: int = 4
    decoder_layers: int = 4
    cell: str = "lstm"
    bidirectional: bool = False
    directions: str = "sum"
    score: str = "general"
    attention_window: str | None = "global"
    window_width: int = 10
    max_source_length: int = 512
    input_feeding: bool = True
    selective_gate: bool = False
    dropout: float | int = 0.2
    share_embeddings: bool = True
    init_range: float | int = 0.1
    use_cache: bool = True
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = False
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        if self.embedding_size is None:
            self.embedding_size = self.d_model
        super().__post_init__(**kwargs)

    @property
    def cross_attention_sizes(self) -> tuple[int, int]:
        return self.num_decoder_layers, self.num_attention_heads

    def validate_luong(self):
        """Part of the `@strict` validation of configurations; models do it again before they are built."""
        windows = (None, *WINDOWS)
        choices = {"cell": CELLS, "directions": DIRECTIONS, "score": SCORES, "attention_window": windows}
        check_choices(self, choices)
        if self.guided:
            raise ValueError("`guided` must be False in a recurrent model, got True.")
        if self.attention_window is None:
            for name in ("input_feeding", "selective_gate", "copy", "output_gate"):
                if getattr(self, name):
                    raise ValueError(f"`{name}` needs an `attention_window`, got None. Set it to False.")
        if self.attention_window != "global":
            for name, off in (("calibration", None), ("leaky", False), ("gumbel", False)):
                if getattr(self, name) != off:
                    raise ValueError(
                        f'`{name}` needs `attention_window="global"`, got {self.attention_window!r}. Set it to {off}.'
                    )
        if self.tie_word_embeddings and self.embedding_size != self.d_model:
            raise ValueError(
                f"`tie_word_embeddings` needs `embedding_size` equal to `d_model`, got {self.embedding_size} and "
                f"{self.d_model}."
            )
