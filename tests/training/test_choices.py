"""Jobs and presets that follow from the names and the text of a training."""

import warnings

import pytest

from hf_attncal.training.request import TrainingRequest, model_settings


def test_a_text_without_target_trains_a_language_model_with_a_message(tmp_path):
    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    asked = TrainingRequest("train", source=tmp_path / "text")
    with pytest.warns(UserWarning, match="no --target"):
        assert model_settings(None, asked)[0] == "language"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model_settings("discrete-2", asked) == ("language", {"model": {"streams": 2}})
