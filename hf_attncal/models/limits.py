"""How large the sizes in a configuration may be: beyond, a damaged or hostile file would only exhaust the memory."""

# Far above any published model; a table of sinusoidal positions is computed number by number.
LIMITS = {
    "encoder_layers": 1_000,
    "decoder_layers": 1_000,
    "d_model": 100_000,
    "encoder_ffn_dim": 1_000_000,
    "decoder_ffn_dim": 1_000_000,
    "ffn_dim": 1_000_000,
    "vocab_size": 5_000_000,
    "decoder_vocab_size": 5_000_000,
    "max_position_embeddings": 100_000,
    "max_jump": 100_000,
}
MAX_PARAMETERS = 10**11


def check_sizes(config) -> None:
    """Check the sizes that a configuration has, before anything is built of them.

    Raises:
        ValueError: a size is beyond its limit, or all of them together are; the message names the field, the limit and
            the value.
    """
    sizes = {name: getattr(config, name, None) or 0 for name in LIMITS}
    for name, limit in LIMITS.items():
        if sizes[name] > limit:
            raise ValueError(f"`{name}` must be at most {limit}, got {sizes[name]}.")
    # From below: the attention and feed-forward matrices of a layer, and the tables.
    layers = sizes["encoder_layers"] * (4 * sizes["d_model"] + 2 * max(sizes["encoder_ffn_dim"], sizes["ffn_dim"]))
    layers += sizes["decoder_layers"] * (8 * sizes["d_model"] + 2 * max(sizes["decoder_ffn_dim"], sizes["ffn_dim"]))
    parameters = sizes["d_model"] * (layers + sizes["vocab_size"])
    if parameters > MAX_PARAMETERS:
        raise ValueError(
            f"the model must have at most {MAX_PARAMETERS:.0e} parameters, got about {parameters:.1e}, from "
            f"{', '.join(f'`{name}` {size}' for name, size in sizes.items() if size)}."
        )
