"""Settings of the tests on speech."""

import pytest
import transformers


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Silence transformers, whose `generate` of Whisper logs that it uses deprecated arguments of its own."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)
