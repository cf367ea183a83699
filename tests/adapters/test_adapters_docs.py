"""The Python examples of docs/adapters.md run, one after the other."""

import re
import warnings
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

from hf_attncal import AttnCalMarianMTModel
from hf_attncal.cli import main
from hf_attncal.data.tokenizer import train_bpe_tokenizer

DOCS = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = train_bpe_tokenizer(["a dog runs .", "ein hund läuft .", "a cat sleeps .", "ein kater schläft ."], 60)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=32,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    MarianMTModel(config).save_pretrained("base")
    tokenizer.save_pretrained("base")
    examples = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 7
    namespace: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for example in examples:
            exec(compile(example, str(DOCS), "exec"), namespace)
    assert namespace["outputs"].calibration_masks[-1].shape[:2] == (1, 2)
    sizes = [(tmp_path / name / "adapter_model.safetensors").stat().st_size for name in ("small", "adapter")]
    assert sizes[0] < 0.7 * sizes[1]  # the header of the file does not shrink
    assert isinstance(namespace["full"], AttnCalMarianMTModel)

    Path("source.txt").write_text("a dog runs .\n", encoding="utf-8")
    Path("target.txt").write_text("ein hund läuft .\n", encoding="utf-8")
    (line,) = re.findall(r"^attncal (align run .*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert main([*line.split(), "--output", "links.txt"]) == 0
    links = [tuple(map(int, link.split("-"))) for link in Path("links.txt").read_text().split()]
    assert links
    assert all(i < 4 and j < 4 for i, j in links)
