"""Fetch the test mixins of the installed transformers: `python tests/conformance/fetch_upstream_tests.py`.

transformers' `ModelTesterMixin` and `ConfigTester` are the conformance suite of any model class, but no wheel holds
them: they are in the `tests/` folder of the source distribution. This takes the one of the very version that is
installed and keeps its tests under `.cache/upstream_tests/<version>/tests/` (ignored by git). Once they are there it
does nothing. Without a network: `python tests/conformance/fetch_upstream_tests.py transformers-<version>.tar.gz`.

Standard library and pip only, so that it runs on a machine where nothing but the package's requirements is installed.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version as installed_version
from pathlib import Path, PurePosixPath

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "upstream_tests"
NEEDED = ("test_modeling_common.py", "test_configuration_common.py")


def upstream_tests(version: str | None = None) -> Path:
    """The folder with the tests of transformers `version` (default: the installed one), fetched or not."""
    return CACHE / (version or installed_version("transformers")) / "tests"


def is_fetched(folder: Path) -> bool:
    """Return True if `folder` has the modules that the conformance suite imports."""
    return all((folder / name).is_file() for name in NEEDED)


def fetch(archive: Path | None = None, version: str | None = None) -> Path:
    """Extract the tests of transformers `version` (default: the installed one) unless they are there.

    Args:
        archive: the source distribution; `None` to download it.

    Returns:
        Their folder.

    Raises:
        RuntimeError: pip could not get the source distribution (offline, or a version that is not on the index), or it
            is of another version, or it does not hold the tests.
    """
    version = version or installed_version("transformers")
    if archive is not None and archive.name != f"transformers-{version}.tar.gz":
        raise RuntimeError(f"The tests have to be those of transformers {version}, which is installed, got {archive}.")
    folder = upstream_tests(version)
    if is_fetched(folder):
        return folder
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    # Beside the cache, so that the last step is a rename: an interrupted run leaves nothing that looks complete.
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder.parent.parent) as temporary:
        extracted = Path(temporary) / "extracted"
        extract_tests(archive or download_source_distribution(version, Path(temporary)), extracted)
        if not is_fetched(extracted / "tests"):
            raise RuntimeError(f"The source distribution of transformers {version} does not hold tests/{NEEDED[0]}.")
        shutil.rmtree(folder.parent, ignore_errors=True)
        try:
            extracted.rename(folder.parent)
        except OSError:
            if not is_fetched(folder):  # otherwise another process was faster
                raise
    return folder


def download_source_distribution(version: str, destination: Path) -> Path:
    """Let pip download transformers' source distribution; pip knows the user's index, proxy and certificates.

    pip prepares the metadata of any source distribution that it downloads, which needs setuptools: first in isolation,
    as for the installation of this package, then, for machines that have setuptools but no index with it, without.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "transformers"]
    command += ["--disable-pip-version-check", "--dest", str(destination), f"transformers=={version}"]
    for options in ([], ["--no-build-isolation"]):
        run = subprocess.run([*command, *options], capture_output=True, text=True)
        archives = list(destination.glob("transformers-*.tar.gz"))
        if run.returncode == 0 and archives:
            return archives[0]
    raise RuntimeError(
        f"Cannot download the source distribution of transformers {version}, whose tests/ folder is the conformance "
        f"suite. This needs pip (`{sys.executable} -m ensurepip`) and, once, a network connection.\n"
        f"Offline: python {sys.argv[0]} transformers-{version}.tar.gz, with that file from elsewhere.\n"
        f"Tried: {' '.join(command)}\npip said:\n{run.stderr.strip()[-2000:]}"
    )


def extract_tests(archive: Path, destination: Path) -> None:
    """Write `transformers-<version>/tests/**/*.py` of `archive` to `destination / "tests"`, and make it a package."""
    with tarfile.open(archive) as source:
        for member in source:
            parts = PurePosixPath(member.name).parts[1:]
            if parts[:1] == ("tests",) and ".." not in parts and member.isfile() and member.name.endswith(".py"):
                target = destination.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.extractfile(member).read())
    if (destination / "tests").is_dir():
        (destination / "tests" / "__init__.py").touch()  # ConfigTester's module loads it by its path


if __name__ == "__main__":
    try:
        print(f"tests of transformers: {fetch(Path(sys.argv[1]) if len(sys.argv) > 1 else None)}")
    except (RuntimeError, OSError, tarfile.TarError) as error:
        sys.exit(str(error))
