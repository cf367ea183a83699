"""Embeddings of words: the tables of a model, whole words, nearest neighbours, the map."""

import numpy as np
import pytest
import torch
from seq2seq_helpers import bpe_tokenizer, sized
from word_vectors import embedding_tables, nearest_neighbours, plane, whole_words

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForConditionalGeneration


@pytest.mark.parametrize("streams", [1, 2])
def test_the_tables_of_a_model_by_stream(streams):
    config = DiscreteTransformerConfig(**sized(bpe_tokenizer()), streams=streams)
    model = DiscreteTransformerForConditionalGeneration(config)
    tables = embedding_tables(model)
    assert list(tables) == [["only"], ["syntactic", "semantic"]][streams - 1]
    assert tables[list(tables)[-1]].equal(model.model.encoder.embed_tokens.weight)
    if streams == 2:
        assert tables["syntactic"].equal(model.model.encoder.syntactic_embed_tokens.weight)
    assert not any(table.requires_grad for table in tables.values())


def test_whole_words_are_one_known_token():
    tokenizer = bpe_tokenizer()
    marked = {token[1:]: number for token, number in tokenizer.get_vocab().items() if token.startswith("▁")}
    words = [word for word in marked if len(word) > 1][:5]
    found = whole_words(tokenizer, [*words, "unheardofword", "§", words[0]])
    assert found == {word: marked[word] for word in words}
    assert list(found) == words
    assert whole_words(tokenizer, []) == {}


def test_neighbours_are_the_nearest_by_angle_one_by_one():
    vectors = torch.randn(30, 5, dtype=torch.float64)
    vectors *= torch.rand(30, 1, dtype=torch.float64) + 0.1  # lengths do not matter
    found = nearest_neighbours(vectors, 4)
    for n, row in enumerate(found.tolist()):
        cosine = [float(torch.cosine_similarity(vectors[n], other, dim=0)) for other in vectors]
        assert row == sorted((i for i in range(30) if i != n), key=lambda i: -cosine[i])[:4]


def test_a_twin_is_a_neighbour_and_the_word_itself_is_not():
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    assert nearest_neighbours(vectors, 3).tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_the_map_keeps_groups_together_and_is_the_same_again():
    centres = torch.eye(3).repeat_interleave(20, 0)
    vectors = centres + 0.05 * torch.randn(60, 3)
    places = plane(vectors, seed=1)
    assert places.shape == (60, 2)
    near = nearest_group(places)
    assert np.mean(near == np.repeat(range(3), 20)) > 0.95
    assert np.array_equal(places, plane(vectors, seed=1))
    with pytest.raises(ValueError, match="4 vectors, got 3"):
        plane(vectors[:3])


def nearest_group(places):
    """The group of the nearest other point of each."""
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    return distances.argmin(axis=1) // 20
