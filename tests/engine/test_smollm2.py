"""The embedded model on natural text (F20): the engine says what transformers says, and stays small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.families import plain
from tests.engine.reference import assert_equal_up_to_ties, greedy
from tests.engine.rig import Rig, layout_of, serve
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from kvseal.engine import load_model
from kvseal.model import ModelUnavailable

pytestmark = [pytest.mark.model, pytest.mark.slow]

NOISE = 5e-4  # two float32 passes of this model were measured to differ by 2e-4 in a logit
ANSWER = 12
STORY = (
    "The lighthouse keeper wrote down every ship that passed. On the third of March a schooner with torn "
    "sails came round the headland, and nobody on board waved back. He counted eleven people on deck. "
    "The wind turned north in the evening and the sea grew quiet, so he rowed out to ask what they needed. "
)


def chat(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = [
    "Once",
    "The capital of France is",
    chat("Write one sentence about the sea."),
    chat("What is 17 plus 25? Explain each step.") + "17 plus 25 is",
    chat(f"Summarise this text in one sentence.\n\n{STORY}"),
    chat(f"How many people were on deck?\n\n{STORY * 5}"),
]


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    try:
        return Path(request.getfixturevalue("model_folder"))
    except ModelUnavailable as error:
        pytest.skip(f"the embedded model cannot be fetched: {error}")


@pytest.fixture(scope="module")
def model(folder: Path) -> PreTrainedModel:
    # One thread: where others compute too, waiting for a second one costs far more than it gives.
    return load_model(folder, "float32", threads=1)


def test_natural_prompts_get_the_answers_of_transformers(folder: Path, model: PreTrainedModel) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    asked = [tokenizer.encode(text).ids for text in PROMPTS]
    # The trap: the padding token of this model is its end-of-turn token, which these prompts contain.
    assert any(model.config.pad_token_id in prompt for prompt in asked)
    rig = Rig(model, layout_of(folder, 16))

    answers = serve(rig, asked, ANSWER, chunk=96, arrives=lambda i: i)

    reference = plain(folder)
    for prompt, answer in zip(asked, answers, strict=True):
        assert_equal_up_to_ties(answer, greedy(reference, prompt, ANSWER), NOISE)


def test_the_reference_of_the_engine_agrees_with_its_pages(folder: Path, model: PreTrainedModel) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tokenizer.encode(PROMPTS[2]).ids
    rig = Rig(model, layout_of(folder, 16))
    (answer,) = serve(rig, [prompt], ANSWER, chunk=16, arrives=lambda _: 0)
    assert max(rig.engine.shortfalls(prompt, answer)) < NOISE
    reference = rig.engine.reference_greedy(prompt, 3)
    assert list(reference.tokens) == answer[:3]


def test_bfloat16_answers_are_greedy_up_to_its_rounding(folder: Path, model: PreTrainedModel) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    asked = [tokenizer.encode(text).ids for text in PROMPTS[:4]]
    low = load_model(folder, "bfloat16", threads=1)
    answers = serve(Rig(low, layout_of(folder, 16, "bfloat16")), asked, ANSWER, chunk=64, arrives=lambda _: 0)
    exact = Rig(model, layout_of(folder, 16)).engine
    for prompt, answer in zip(asked, answers, strict=True):
        assert max(exact.shortfalls(prompt, answer)) < 1.0


MEASURE = """
import json, sys
from pathlib import Path
import numpy as np, psutil, torch
from kvseal.core.batch import Slice
from kvseal.core.leases import BlockTable
from kvseal.core.sampling import SamplingParams
from kvseal.engine import Engine, load_model
from kvseal.layout import from_config, read_config

folder, dtype = Path(sys.argv[1]), sys.argv[2]
model = load_model(folder, dtype, threads=1)
layout = from_config(read_config(folder), page_size=16, dtype=dtype, model_digest=bytes(16))
pool = np.full((300, layout.page_bytes), 0xFF, np.uint8)  # touched, so that it counts in full
engine = Engine(model, layout, pool)
engine.run([Slice(BlockTable(tuple(range(64))), 0, tuple(range(512)))])
engine.run([Slice(BlockTable(tuple(range(64))), 512, tuple(range(512)), SamplingParams(1.0, 0.9))])
engine.run([Slice(BlockTable((100 + i,)), 0, (i,), SamplingParams()) for i in range(32)])
weights = sum(p.numel() * p.element_size() for p in {id(p): p for p in model.parameters()}.values())
print(json.dumps({"uss": psutil.Process().memory_full_info().uss, "weights": weights, "pool": pool.nbytes}))
"""


def test_memory_beyond_weights_and_pool_stays_under_600_mb(folder: Path) -> None:
    command = [sys.executable, "-c", MEASURE, str(folder), "bfloat16"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    # The file holds float32, so these weights are converted and private. Measured: 376 MB.
    assert measured["uss"] - measured["pool"] - measured["weights"] < 600e6
