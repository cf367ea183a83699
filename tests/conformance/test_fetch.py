"""Fetching upstream's tests, with a made-up source distribution and without a network."""

import io
import subprocess
import tarfile
from pathlib import Path

import fetch_upstream_tests as fetching
import pytest

VERSION = "0.0.1"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetching, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command, **options):
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no network today")

    monkeypatch.setattr(fetching.subprocess, "run", run)


def source_distribution(folder: Path, names: list[str]) -> Path:
    archive = folder / f"transformers-{VERSION}.tar.gz"
    with tarfile.open(archive, "w:gz") as target:
        for name in names:
            member = tarfile.TarInfo(f"transformers-{VERSION}/{name}")
            member.size = len(name)
            target.addfile(member, io.BytesIO(name.encode()))
    return archive


@pytest.mark.usefixtures("no_download")
def test_without_a_network_the_error_has_a_remedy(cache: Path):
    with pytest.raises(RuntimeError, match=r"(?s)transformers-0\.0\.1\.tar\.gz, with that file.*no network today"):
        fetching.fetch(version=VERSION)
    assert not list(cache.iterdir())


def test_an_archive_without_the_tests_or_of_another_version_is_refused(tmp_path: Path, cache: Path):
    archive = source_distribution(tmp_path, ["setup.py"])
    with pytest.raises(RuntimeError, match=r"does not hold tests/test_modeling_common\.py"):
        fetching.fetch(archive, VERSION)
    assert not list(cache.iterdir())
    with pytest.raises(RuntimeError, match=r"transformers 0\.0\.2"):
        fetching.fetch(archive, "0.0.2")
