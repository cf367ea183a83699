"""Publish every kind of model on a Hub of tests, load it elsewhere, and try every fault: results/publishing.json.

    python tests/hub/campaign.py --output results/publishing.json

Each fault is answered while a model is published; then the same is published again (`hub_helpers.lost_under`).
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]
os.environ |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}

import huggingface_hub.utils._http as http
import peft
import torch
from hub_helpers import FAULTS, KINDS, computed, elsewhere, lost_under, saved
from huggingface_hub import ModelCard
from local_hub import Hub

from hf_attncal.hub import publish_folder
from hf_attncal.hub.published_card import pinned_revision
from hf_attncal.io.files import write_json
from hf_attncal.metrics import records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args()
    http.time.sleep = lambda seconds: None  # between tries
    with tempfile.TemporaryDirectory() as place, Hub() as hub:
        families = publish_families(hub, Path(place))
    lost = {fault: told for fault in FAULTS if (told := lost_by(fault))}
    loaded = sum(found["loaded_without_the_package"] for found in families.values())
    numbers = {
        "families": families,
        "families_loaded": loaded,
        "faults": {"tried": len(FAULTS), "lost": len(lost), "names": lost},
    }
    write_json(records.record({"part": "publishing"}, {}, "cpu") | numbers, options.output)
    print(f"wrote {options.output}")


def publish_families(hub: Hub, place: Path) -> dict[str, dict[str, bool]]:
    """Return for each kind what worked."""
    found, asked, expected = {}, {}, {}
    common = {"token": "x", "endpoint": hub.url, "license": "mit", "languages": ["en", "de"]}
    for kind in KINDS:
        model, auto, aligns = saved(kind, place / kind)
        done = publish_folder(place / kind, f"anna/{kind}", **common)  # tries to load it without the package, too
        card = hub.repositories[f"anna/{kind}"].files("main")["README.md"].decode()
        valid = ModelCard(card).data.license == "mit" and pinned_revision(card) == done.commit
        asked[kind], expected[kind] = (f"anna/{kind}", done.commit, auto, aligns, None), computed(model, auto, aligns)
        found[kind] = {"published": True, "card_valid": valid}
        if not aligns:
            found[kind]["generates"] = True  # else the process elsewhere fails
        if auto == "AutoModelForSeq2SeqLM":
            adapted = peft.get_peft_model(
                model, peft.LoraConfig(target_modules="all-linear", r=2, init_lora_weights=False)
            )
            adapted.save_pretrained(place / f"{kind}-adapter")
            publish_folder(place / f"{kind}-adapter", f"anna/{kind}-adapter", base_model=f"anna/{kind}", **common)
            adapter = f"{kind}, adapter"
            asked[adapter] = *asked[kind][:4], f"anna/{kind}-adapter"
            expected[adapter] = computed(adapted.eval(), auto, aligns)
    answers = elsewhere(hub, asked, place)
    for name, output in answers.items():
        kind, _, adapter = name.partition(", ")
        same = torch.allclose(output, expected[name], rtol=1e-5, atol=1e-6)
        found[kind]["adapter_on_top" if adapter else "loaded_without_the_package"] = same
    return found


def lost_by(fault: str) -> str | None:
    with tempfile.TemporaryDirectory() as place, Hub() as hub:
        saved("marian", Path(place, "model"))
        return lost_under(hub, Path(place, "model"), fault)


if __name__ == "__main__":
    main()
