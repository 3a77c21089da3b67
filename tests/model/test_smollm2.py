"""The embedded model as everybody else gets it: loaded by transformers from the cache folder."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

EOS = 2


def load(folder: Path, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def answer(model: Any, folder: Path, question: str) -> str:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    # With the attention mask that comes with it: generate would mask every <|im_end|> of the prompt without.
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    with torch.inference_mode():
        output = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    return str(tokenizer.decode(output[0, prompt["input_ids"].shape[1] :]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_it_answers_sensibly_and_the_same_after_a_reload(model_folder: Path, dtype: torch.dtype) -> None:
    question = "What is the capital of France?"
    first, second = (answer(load(model_folder, dtype), model_folder, question) for _ in range(2))
    assert first == "The capital of France is Paris.<|im_end|>"
    assert second == first


def test_its_shape_is_the_one_that_the_notes_name(model_folder: Path) -> None:
    model = load(model_folder, torch.float32)
    config = model.config
    assert (config.model_type, config.num_hidden_layers, config.head_dim) == ("llama", 30, 64)
    assert (config.num_attention_heads, config.num_key_value_heads) == (9, 3)
    assert (config.max_position_embeddings, config.vocab_size) == (8192, 49152)
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_generation_ends_at_the_end_of_a_turn(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    generation = load(model_folder, torch.bfloat16).generation_config
    assert (generation.eos_token_id, generation.pad_token_id) == (EOS, EOS)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (EOS, EOS)
    assert tokenizer.convert_ids_to_tokens(EOS) == "<|im_end|>"
    assert tokenizer.model_max_length == 8192


def test_the_chat_template_wraps_every_turn(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "text", ["  12345 abc 4.5", "naïve – 日本語 🙂", "tab\t\n\n  code", "it's <|im_end|> here"]
)
def test_text_survives_the_tokenizer(model_folder: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_are_tokens_of_their_own_as_in_training(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    assert tokenizer.tokenize("  123 4") == ["ĠĠ", "1", "2", "3", "Ġ", "4"]
