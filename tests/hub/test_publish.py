"""Publishing on a Hub of tests: every family loads from there without the package, and faults lose nothing."""

import json
import os
import subprocess
import sys

import huggingface_hub.constants
import peft
import pytest
import torch
from hub_helpers import FAULTS, KINDS, computed, elsewhere, lost_under, saved
from huggingface_hub import ModelCard
from local_hub import Hub
from safetensors.torch import load_file, save_file

from hf_attncal import AttnCalMarianMTModel
from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.alignment.probabilities import LinkProbabilities, Platt
from hf_attncal.data.spm import without_file_names
from hf_attncal.families import FAMILIES
from hf_attncal.hub import PublishError, Result, publish_folder, write_model_card
from hf_attncal.hub.published_card import CardFields, card_scores, pinned_revision, published_card
from hf_attncal.inference.seals import write_sealed

NAME = "someone/model"


@pytest.fixture(autouse=True)
def without_xet(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)  # between tries


@pytest.fixture
def hub():
    with Hub() as served:
        yield served


@pytest.fixture
def ready(folder):
    """A saved tiny model with its card and its results."""
    results = [Result("BLEU on dev", 31.0, "nrefs:1|v"), Result("BLEU on test", 30.5, "nrefs:1|v")]
    about = {"model_name": folder.name, "summary": "A model.", "training_data": "lines", "example": "the old house"}
    write_model_card(folder, **about, results=results)
    trained = {"commit": "1" * 40, "command": "attncal train", "data_sha256": {"train.de": "ab12"}, "steps": 7}
    (folder / "results.json").write_text(json.dumps(trained | {"wall_seconds": 90, "hardware": {"cpu": "a CPU"}}))
    return folder


def sent(folder, hub, **options):
    return publish_folder(folder, NAME, token="x", endpoint=hub.url, **{"try_loading": False} | options)


@pytest.mark.parametrize("kinds", [("bart", "hmm_align"), pytest.param(tuple(KINDS), marks=pytest.mark.slow)], ids=len)
def test_every_family_loads_from_the_hub_without_the_package(hub, tmp_path, kinds):
    asked, expected = {}, {}
    for kind in kinds:
        model, auto, aligns = saved(kind, tmp_path / kind)
        options = {"token": "x", "endpoint": hub.url, "try_loading": False, "license": "mit"}
        done = publish_folder(tmp_path / kind, f"someone/{kind}", **options)
        asked[kind] = f"someone/{kind}", done.commit, auto, aligns, None
        expected[kind] = computed(model, auto, aligns)
        card = hub.repositories[f"someone/{kind}"].files("main")["README.md"].decode()
        assert pinned_revision(card) == done.commit
        assert "from_pretrained(name, revision=revision, trust_remote_code=True)" in card
        assert ModelCard(card).data.license == "mit"
    assert {config.model_type for _, config in KINDS.values()} == set(FAMILIES)
    answers = elsewhere(hub, asked, tmp_path)
    for kind, output in answers.items():
        torch.testing.assert_close(output, expected[kind], rtol=1e-5, atol=1e-6)
    assert set(answers) == set(kinds)


def test_an_adapter_is_used_on_a_base_from_the_hub(hub, ready, tmp_path):
    sent(ready, hub)
    base = AttnCalMarianMTModel.from_pretrained(ready)
    config = peft.LoraConfig(target_modules=["q_proj"], r=2, task_type="SEQ_2_SEQ_LM")
    adapter = peft.get_peft_model(base, config)
    folder = tmp_path / "adapter"
    adapter.save_pretrained(folder)
    with pytest.raises(PublishError, match=r"elsewhere.*base_model=OWNER/NAME"):
        publish_folder(folder, "someone/adapter", token="x", endpoint=hub.url)
    publish_folder(folder, "someone/adapter", token="x", endpoint=hub.url, base_model=NAME)
    files = hub.repositories["someone/adapter"].files("main")
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == NAME
    assert ModelCard(files["README.md"].decode()).data.base_model == NAME
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] != NAME


def test_an_attention_calibration_adapter_names_itself(hub, ready, tmp_path):
    base = AttnCalMarianMTModel.from_pretrained(ready, calibration=None)
    folder = tmp_path / "adapter"
    peft.get_peft_model(base, AttentionCalibrationConfig(calibration="gated")).save_pretrained(folder)
    publish_folder(folder, "someone/adapter", token="x", endpoint=hub.url, base_model=NAME)
    card = hub.repositories["someone/adapter"].files("main")["README.md"].decode()
    assert 'AutoPeftModelForSeq2SeqLM.from_pretrained("someone/adapter")' in card


def test_the_card_has_the_known_facts(hub, ready):
    done = sent(ready, hub, license="apache-2.0", languages=["en", "de"], datasets=["some/text"])
    files = hub.repositories[NAME].files("main")
    card = files["README.md"].decode()
    data = ModelCard(card).data
    assert (data.license, data.language, data.datasets) == ("apache-2.0", ["en", "de"], ["some/text"])
    assert (data.library_name, data.pipeline_tag, data.metrics) == ("transformers", "translation", ["bleu"])
    found = {score.dataset_split: score for score in data.eval_results}
    assert found["test"].metric_value == 30.5
    assert found["test"].metric_args == {"signature": "nrefs:1|v"}
    assert found["test"].dataset_name == "some/text"
    for told in ("# model\n", "`ab12`", "1.5", "a CPU", "1" * 40, "`attncal train`", "## Limits", "```bibtex"):
        assert told in card, told
    assert "pipeline(" not in card
    assert done.missing == ()
    assert hub.repositories[NAME].private


def test_missing_facts_are_named(hub, ready):
    assert sent(ready, hub, dry_run=True).missing == ("license", "language")
    assert "No license is given" in published_card((ready / "README.md").read_text(), NAME, None, CardFields(), {})


def test_the_scores_of_a_card_are_read():
    card = "| AER on test, half | 4.7 | `v:1\\|n:2` |\n| no signature | 3 |\n"
    (score,) = card_scores(card)
    assert (score["measure"], score["metric"], score["split"]) == ("AER", "aer", "test, half")
    assert (score["value"], score["signature"]) == (4.7, "v:1|n:2")


# ---- again, and cut off ----


def test_a_second_time_changes_nothing(hub, ready):
    first = sent(ready, hub)
    commits = list(hub.repositories[NAME].commits)
    second = sent(ready, hub)
    assert first.changed
    assert not second.changed
    assert second.commit == first.commit
    assert list(hub.repositories[NAME].commits) == commits
    write_sealed({}, ready / "check.json")
    third = sent(ready, hub)
    assert third.changed
    assert pinned_revision(hub.repositories[NAME].files("main")["README.md"].decode()) == third.commit


def test_deleted_files_are_deleted_on_the_hub_and_others_stay(hub, ready):
    write_sealed({}, ready / "check.json")
    sent(ready, hub)
    repository = hub.repositories[NAME]
    repository.commits[repository.head]["picture.png"] = b"made by hand"
    (ready / "check.json").unlink()
    sent(ready, hub)
    assert "check.json" not in repository.files("main")
    assert repository.files("main")["picture.png"] == b"made by hand"


@pytest.mark.half("fault")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gives_one_message_and_publishes_nothing(hub, ready, fault):
    assert lost_under(hub, ready, fault) is None


def test_a_fault_between_the_two_commits_is_mended_by_the_next_time(hub, ready):
    hub.faults["/commit/"] = [None, 500]  # the first is answered as it should be
    with pytest.raises(PublishError):
        sent(ready, hub)
    repository = hub.repositories[NAME]
    assert repository.messages == ["Publish model"]
    assert pinned_revision(repository.files("main")["README.md"].decode()) is None
    done = sent(ready, hub)
    assert repository.messages == ["Publish model", f"Pin the example of the card to {done.commit[:7]}"]
    assert list(repository.commits)[1] == done.commit


def test_someone_else_writes_at_the_same_time(hub, ready):
    sent(ready, hub)
    repository = hub.repositories[NAME]
    before = dict(repository.files("main"))
    write_sealed({}, ready / "check.json")
    hub.before_commit = lambda: repository.commits.setdefault("f" * 40, before)
    with pytest.raises(PublishError, match="run the command again"):
        sent(ready, hub)
    assert repository.head == "f" * 40


def test_a_killed_upload_is_finished_by_the_next(hub, ready, tmp_path):
    hub.uploads_go_on.clear()
    program = (
        "import sys; from hf_attncal.hub import publish_folder; "
        "publish_folder(sys.argv[1], sys.argv[2], token='x', endpoint=sys.argv[3], try_loading=False)"
    )
    environment = os.environ | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", program, str(ready), NAME, hub.url]  # huggingface_hub reads those when imported
    process = subprocess.Popen(command, env=environment)
    while not any("PUT /store" in asked for asked in hub.requests):
        assert process.poll() is None
    process.kill()
    process.wait()
    hub.uploads_go_on.set()
    assert all(not files for files in hub.repositories[NAME].commits.values())
    sent(ready, hub)
    assert "model.safetensors" in hub.repositories[NAME].files("main")


# ---- refused ----


def weights_with(folder, metadata=None, **tensors) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path) | tensors, path, metadata=metadata or {"format": "pt"})


def config_with(folder, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


TOKEN = "hf_" + "a1" * 17
REFUSED = {
    "no card": (lambda folder: (folder / "README.md").unlink(), r"has no README\.md"),
    "no tokenizer": (lambda folder: (folder / "tokenizer_config.json").unlink(), "no tokenizer"),
    "a path in the card": (
        lambda folder: (folder / "README.md").open("a").write("\nsee /home/anna/runs/7\n"),
        r"README\.md holds the path '/home/anna/runs/7'",
    ),
    "a path in the results": (
        lambda folder: (folder / "results.json").write_text('{"command": "train --data /data/private/x"}'),
        r"results\.json holds the path '/data/private/x'",
    ),
    "a token in the card": (lambda folder: (folder / "README.md").open("a").write(TOKEN), r"README\.md.*token \(hf_a"),
    "a token as a key": (lambda folder: config_with(folder, **{TOKEN: 1}), r"config\.json.*token"),
    "a token among the words": (
        lambda folder: (folder / "tokenizer.json").write_text(json.dumps({"model": TOKEN})),
        r"tokenizer\.json.*token",
    ),
    "a private key in a licence": (
        lambda folder: (folder / "LICENSE").write_text("-----BEGIN RSA PRIVATE KEY-----"),
        "LICENSE.*token",
    ),
    "code of another repository": (
        lambda folder: config_with(folder, auto_map={"AutoConfig": "other/code--configuration.Config"}),
        "not load elsewhere",
    ),
    "code of another repository, elsewhere": (
        lambda folder: config_with(folder, **{"of": ["other/code--configuration.Config"]}),
        r"config\.json loads code.*other/code--configuration\.Config",
    ),
    "a kernel of another repository": (
        lambda folder: config_with(folder, attn_implementation="other/kernel"),
        r"config\.json loads code.*other/kernel",
    ),
    "code that is missing": (
        lambda folder: (folder / "functional.py").unlink(),
        r"functional\.py is imported but missing",
    ),
    "code that is another": (
        lambda folder: (folder / "functional.py").open("a").write("\n"),
        r"functional\.py is not this version's",
    ),
    "metadata of weights": (
        lambda folder: weights_with(folder, metadata={"format": "pt", "by": "anna"}),
        r"model\.safetensors holds `by`",
    ),
    "a tensor that is not named like a parameter": (
        lambda folder: weights_with(folder, **{"see /home/anna": torch.zeros(1)}),
        r"model\.safetensors holds a tensor 'see /home/anna'",
    ),
    "text behind the weights": (
        lambda folder: (folder / "model.safetensors").open("ab").write(b"secret"),
        r"model\.safetensors is damaged",
    ),
    "a link": (
        lambda folder: (folder / "LICENSE").symlink_to(folder / "README.md"),
        r"LICENSE is a symbolic link to .*README\.md",
    ),
}


@pytest.mark.parametrize(("spoil", "told"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_file_and_nothing_is_sent(hub, ready, spoil, told):
    spoil(ready)
    with pytest.raises(PublishError, match=told):
        publish_folder(ready, NAME, token="x", endpoint=hub.url, try_loading=False)
    assert hub.requests == []


BEHIND = {
    *("optimizer.pt", "pytorch_model.bin", "train.de", "secret.txt", "own.py", "report.html", ".env", "LICENSE.pem"),
    *(
        "run.json",
        "dev.hypotheses.txt",
        "training_args.bin",
        "vocab.secret",
        "other.safetensors",
        "checkpoint-5",
        "notes",
    ),
}


def test_files_outside_the_table_are_named_and_not_sent(hub, ready):
    allowed = {path.name for path in ready.iterdir()}
    for name in BEHIND:
        if "." in name:
            (ready / name).write_text(TOKEN)
        else:
            (ready / name).mkdir()
            (ready / name / "config.json").write_text("{}")
    done = sent(ready, hub, leave_out=["results.*"])
    assert set(done.left_out) == BEHIND | {"results.json"}
    files = hub.repositories[NAME].files("main")
    assert set(files) - {".gitattributes"} == allowed - {"results.json"}
    assert not any(TOKEN.encode() in content for content in files.values())


def test_code_is_loaded_without_the_package_before_it_is_sent(ready, quick_fresh_process):
    assert publish_folder(ready, NAME, dry_run=True).files
    config_with(ready, d_model=16)
    with pytest.raises(PublishError, match="does not load without this package"):
        publish_folder(ready, NAME, dry_run=True)


def message(*fields: tuple[int, bytes | str]) -> bytes:
    """A protocol buffer of short fields that have a length."""
    parts = [(number, value.encode() if isinstance(value, str) else value) for number, value in fields]
    return b"".join(bytes([number << 3 | 2, len(value)]) + value for number, value in parts)


def test_a_model_of_sentencepiece_does_not_name_its_text(ready):
    pieces = message((1, message((1, "a"))), (2, message((1, "/home/anna/train.de"), (2, "/tmp/x"))))
    small = message((1, message((1, "a"))), (2, b""))
    assert without_file_names(pieces) == small
    (ready / "source.spm").write_bytes(pieces)
    assert publish_folder(ready, NAME, dry_run=True, try_loading=False).files["source.spm"] == len(small)


def test_files_learned_for_another_model_are_not_sent(ready):
    LinkProbabilities({"harmonic": Platt(1.0, 0.0)}, pairs=2).save(ready)
    path = ready / "link_probabilities.json"
    assert path.name in publish_folder(ready, NAME, dry_run=True, try_loading=False).files
    right = path.read_text()
    path.write_text(right.replace('"pairs": 2', '"pairs": 3'))
    with pytest.raises(
        PublishError, match=r"link_probabilities.json cannot be used: it has been changed since it was written"
    ):
        publish_folder(ready, NAME, dry_run=True, try_loading=False)
    path.write_text(right)
    weights = load_file(ready / "model.safetensors")
    save_file({name: value + 1 for name, value in weights.items()}, ready / "model.safetensors", {"format": "pt"})
    with pytest.raises(PublishError, match=r"learned for another model, not for .* \(different weights\)"):
        publish_folder(ready, NAME, dry_run=True, try_loading=False)


@pytest.mark.parametrize("name", ["model", "a/b/c", "a b/c", "", "../x"])
def test_a_name_that_is_none(hub, ready, name):
    with pytest.raises(PublishError, match=r"`repository`.*OWNER/NAME.*got"):
        publish_folder(ready, name, token="x", endpoint=hub.url)


def test_a_dry_run_needs_no_network(ready):
    done = publish_folder(ready, NAME, dry_run=True, try_loading=False, endpoint="http://127.0.0.1:9")
    assert done.commit is None
    assert done.files["model.safetensors"] == (ready / "model.safetensors").stat().st_size
