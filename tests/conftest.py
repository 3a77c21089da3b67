"""What every test may ask for."""

import os
from pathlib import Path

import pytest

from kvseal.model import default_home, ensure

# Loading models from a hub is never wanted, and an attempt would wait for the network.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The embedded model as a Hugging Face folder (SmolLM2-135M-Instruct). For tests marked `model`.

    `make test` has fetched it; a test run by hand waits for it once. KVSEAL_HOME is respected.
    """
    return ensure(default_home(os.environ))
