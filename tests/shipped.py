"""Packages that a file on the Hub may import, and the models that tests publish."""

# Packages that a published file may import; huggingface_hub, which has `@strict`, is a dependency of transformers.
SHIPPED = {"torch", "transformers", "huggingface_hub"}

MODELS = {
    "marian": {"calibration": "gated", "leaky": True, "gumbel": True},
    "bart": {"calibration": "annealed", "annealing_steps": 10, "mask_inputs": "trained", "leaky": True},
}
MODELS["bart"] |= {"copy": True, "max_copied_tokens": 2, "unk_token_id": 3}
# Models without a mask network: the control for calibration, with the other switches that it allows.
OUTPUT_GATED = {
    "marian, output gate": {"output_gate": True, "guided": True, "guided_layer": 1, "guided_head": 1},
    "bart, output gate": {"output_gate": True, "copy": True, "max_copied_tokens": 2, "unk_token_id": 3},
}

ALIGNER = {
    "vocab_size": 11,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "attention_heads": 2,
    "ffn_dim": 8,
    "dropout": 0.0,
    "prediction": "mixture",
    "diagonal_bias": 1.0,
    "sampled_softmax": True,
    "max_jump": 2,
}
