"""Links from a recurrent model: `attncal align run`, `align select` and `translate --alignments`."""

import pytest
import torch
from seq2seq_helpers import SOURCES, bpe_tokenizer, randomized, sized

from hf_attncal import LuongConfig, LuongForConditionalGeneration, WordAligner

TEXT = "".join(f"{line}\n" for line in SOURCES)
NONE = "`attention_window` of this model of type 'luong' must not be None"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str | None, str]:
    """A random model of each window with its tokenizer."""
    tokens = {name: value for name, value in sized(bpe_tokenizer()).items() if name.endswith("token_id")}
    sizes = {"vocab_size": len(bpe_tokenizer()), "d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
    found = {}
    for window in ("global", "local-p", None):
        found[window] = str(tmp_path_factory.mktemp(str(window)))
        torch.manual_seed(3)
        config = LuongConfig(**sizes, **tokens, attention_window=window, input_feeding=window is not None)
        randomized(LuongForConditionalGeneration(config)).save_pretrained(found[window])
        bpe_tokenizer().save_pretrained(found[window])
    return found


@pytest.mark.parametrize("window", ["global", "local-p"])
def test_translations_and_their_links(attncal, folders, tmp_path, window):
    name, links = folders[window], tmp_path / "links"
    search = ("--beams", "3", "max_new_tokens=8", "--alignments", str(links))
    status, out, err = attncal("translate", name, "--device", "cpu", *search, text=TEXT)
    assert (status, err) == (0, "")
    found = WordAligner.from_pretrained(name, device="cpu").align(zip(SOURCES, out.splitlines(), strict=True))
    assert links.read_text().splitlines() == [alignment.pharaoh() for alignment in found]
    assert any(alignment.links for alignment in found)
    pairs = "".join(f"{source} ||| {target}\n" for source, target in zip(SOURCES, out.splitlines(), strict=True))
    assert attncal("align", "run", name, "--device", "cpu", text=pairs) == (0, links.read_text(), "")
    status, out, err = attncal("translate", name, "--device", "cpu", *search, "--dtype", "bfloat16", "-q", text=TEXT)
    assert (status, out.count("\n"), err) == (0, len(SOURCES), "")


def test_without_attention_there_are_no_links_and_a_message(attncal, folders, tmp_path):
    name, links = folders[None], tmp_path / "links"
    assert attncal("translate", name, "--device", "cpu", "max_new_tokens=4", text=TEXT)[0] == 0
    for command in (("translate", name, "--alignments", str(links)), ("align", "run", name)):
        status, out, err = attncal(*command, "--device", "cpu", text="a ||| b\n")
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert NONE in err
    assert not links.exists()
