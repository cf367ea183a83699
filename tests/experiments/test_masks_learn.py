"""Small models that show whether masks learn: from generated and from real text, each run once."""

import json

import pytest

TINY = """
tokenizer: {vocab_size: 60}
model: {d_model: 8, encoder_layers: 1, decoder_layers: 1, encoder_attention_heads: 1, decoder_attention_heads: 1,
  encoder_ffn_dim: 8, decoder_ffn_dim: 8, max_position_embeddings: 128, calibration: gated}
training: {tokens_per_batch: 128, logging_steps: 1, save_strategy: no, report_to: none, disable_tqdm: true}
"""


@pytest.fixture
def module(experiment, tmp_path, monkeypatch):
    module = experiment("masks_learn")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "SETTINGS", TINY)
    monkeypatch.setattr(module, "REAL", "model: {max_position_embeddings: 32}")
    (tmp_path / "masks_learn").mkdir()
    return module


def test_each_run_is_made_once(module, tmp_path, capsys):
    sides = [str(tmp_path / name) for name in ("a.source", "a.target")]
    for side in sides:
        with open(side, "w", encoding="utf-8") as file:
            file.writelines(f"the small house number {n} is old\n" for n in range(30))
    command = ["--pairs", "20", "--steps", "2", "--name", "houses", "--source", sides[0], "--target", sides[1]]
    module.main([*command, "--seeds", "1"])
    path = tmp_path / "masks_learn" / "houses_20.json"
    first = json.loads(path.read_text(encoding="utf-8"))
    assert list(first["data_sha256"]) == ["houses/a.source", "houses/a.target"]
    runs = [(run["seed"], run["mask_cost"], len(run["history"])) for run in first["runs"]]
    assert runs == [(1, None, 2), (1, 0.1, 2)]
    # Blurring costs nothing yet: with `mask_cost` the masks have not moved from where they started.
    masks = [[entry["mask_mean"] for entry in run["history"]] for run in first["runs"]]
    assert masks[1] == pytest.approx([0.5, 0.5], abs=0.05)
    module.main([*command, "--seeds", "2"])
    second = json.loads(path.read_text(encoding="utf-8"))
    assert second["runs"][:2] == first["runs"]
    assert [run["seed"] for run in second["runs"]] == [1, 1, 2, 2]
    with pytest.raises(SystemExit):
        module.main([*command[:2], "--steps", "3", *command[4:]])
    assert "has other settings" in capsys.readouterr().err


def test_text_is_generated_without_files(module, tmp_path):
    module.main(["--pairs", "40", "--steps", "1", "--seeds", "1"])
    result = json.loads((tmp_path / "masks_learn" / "40.json").read_text(encoding="utf-8"))
    assert result["config"]["pairs"] == 40
    assert [run["useful"] for run in result["runs"]] == [False, False]
