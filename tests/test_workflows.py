"""The workflows: actions are pinned by hash, rights are few, and what they call is there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.fixture(params=WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def workflow(request):
    return yaml.safe_load(request.param.read_text(encoding="utf-8"))


def test_there_are_workflows():
    assert {path.stem for path in WORKFLOWS} == {"tests", "release", "publish-model", "site"}


def test_actions_are_pinned_by_hash(workflow):
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]


def test_rights_are_few(workflow):
    """Every job may only read; an identity, or writing pages, is allowed only for publishing."""
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        rights = job.get("permissions", {})
        assert all(right == "read" for what, right in rights.items() if what not in ("id-token", "pages"))
        assert ("id-token" in rights) == ("environment" in job), name


def test_no_checkout_keeps_a_token(workflow):
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_called_commands_exist(workflow):
    called = [target for step in steps(workflow) for target in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))]
    assert set(called) <= TARGETS


def test_every_python_that_the_package_allows_is_tested():
    import tomllib

    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = {found[1] for line in project["classifiers"] if (found := re.fullmatch(r".*Python :: (3\.\d+)", line))}
    assert set(tests["jobs"]["newest"]["strategy"]["matrix"]["python"]) == told
    assert project["requires-python"] == f">={min(told, key=lambda version: int(version[2:]))}"
