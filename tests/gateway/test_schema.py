"""Fields: each works, or is refused by its name; none is ignored."""

from typing import Any

import pytest

from kvseal.core.errors import Code
from kvseal.gateway import schema
from kvseal.gateway.refusals import Refused

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "m", "prompt": "hi"}


def refusal_of_chat(**fields: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        schema.options(schema.read_chat(CHAT | fields))
    return caught.value


def refusal_of_text(**fields: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        schema.single_prompt(schema.read_completion(TEXT | fields).prompt)
    return caught.value


def test_defaults_are_those_of_openai() -> None:
    options = schema.options(schema.read_chat(CHAT))
    assert options == schema.Options(
        temperature=1.0,
        top_p=1.0,
        seed=None,
        stop=(),
        max_tokens=None,
        ignore_eos=False,
        stream=False,
        include_usage=False,
    )


def test_every_field_that_works() -> None:
    body = CHAT | {
        "temperature": 0,
        "top_p": 0.5,
        "seed": -(2**63),
        "stop": ["a", "b"],
        "max_completion_tokens": 7,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": "somebody",
        "safety_identifier": "somebody",
    }
    assert schema.options(schema.read_chat(body)) == schema.Options(
        temperature=0.0,
        top_p=0.5,
        seed=-(2**63),
        stop=("a", "b"),
        max_tokens=7,
        ignore_eos=True,
        stream=True,
        include_usage=True,
    )


def test_null_is_the_default() -> None:
    names = ["temperature", "top_p", "seed", "stop", "max_tokens", "max_completion_tokens", "ignore_eos"]
    names += ["stream", "stream_options", "user", *schema._NEUTRAL_CHAT]
    assert schema.options(schema.read_chat(CHAT | dict.fromkeys(names))) == schema.options(
        schema.read_chat(CHAT)
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.01),
        ("seed", 1.5),
        ("seed", 2**63),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.0),
        ("max_tokens", 2**31),
        ("max_completion_tokens", 0),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["a"] * 5),
        ("stop", ["x" * 257]),
        ("stop", 3),
        ("stream", "yes"),
        ("stream", 1),
        ("ignore_eos", 0),
        ("user", 7),
        ("user", "x" * 513),
        ("model", None),
        ("messages", None),
        ("messages", {}),
        ("messages", "hi"),
        ("stream_options", {"include_usage": True}),  # without stream
    ],
)
def test_a_wrong_value_is_refused_by_name(field: str, value: Any) -> None:
    refused = refusal_of_chat(**{field: value})
    assert refused.code is Code.INVALID_REQUEST
    assert refused.param == field
    assert field in refused.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("n", True),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("logit_bias", {"50256": -100}),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("modalities", ["text", "audio"]),
        ("reasoning_effort", "high"),
        ("store", True),
        ("service_tier", "flex"),
        ("best_of", 1),  # of the other endpoint
        ("prompt", "hi"),
        ("top_k", 40),
        ("tenant", "somebody else"),
        ("kv_transfer_params", {"remote": "other"}),  # G11: transfers are never a client's business
        ("request_id", "abc"),
        ("cache_salt", "abc"),
        ("", 1),
    ],
)
def test_a_field_that_we_lack_is_refused_by_name(field: str, value: Any) -> None:
    refused = refusal_of_chat(**{field: value})
    assert refused.code is Code.INVALID_REQUEST
    assert refused.param == field
    assert field in refused.message


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in schema._NEUTRAL_CHAT.items() for value in values],
)
def test_values_that_ask_for_nothing_are_taken(field: str, value: Any) -> None:
    assert schema.read_chat(CHAT | {field: value}) == schema.read_chat(CHAT)


@pytest.mark.parametrize(
    ("field", "value"),
    [("logprobs", 0), ("echo", True), ("suffix", "x"), ("best_of", 2), ("n", 0), ("messages", [])],
)
def test_completions_refuse_what_they_lack(field: str, value: Any) -> None:
    assert refusal_of_text(**{field: value}).param == field


def test_both_names_of_max_tokens_must_agree() -> None:
    refused = refusal_of_chat(max_tokens=5, max_completion_tokens=6)
    assert refused.param == "max_tokens"
    same = schema.read_chat(CHAT | {"max_tokens": 5, "max_completion_tokens": 5})
    assert schema.options(same).max_tokens == 5


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": "x", "name": "anna"}, "messages[0].name"),
        ({"role": "user", "content": "x", "mood": "good"}, "messages[0].mood"),
        ({"role": "assistant", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls"),
        ("hi", "messages[0]"),
    ],
)
def test_messages_are_checked_to_the_part(message: Any, param: str) -> None:
    refused = refusal_of_chat(messages=[message])
    assert refused.code is Code.INVALID_REQUEST
    assert refused.param == param


def test_no_messages_are_an_empty_prompt() -> None:
    refused = refusal_of_chat(messages=[])
    assert (refused.code, refused.param) == (Code.EMPTY_PROMPT, "messages")


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    answer: dict[str, Any] = {"role": "assistant", "content": "x", "refusal": None, "annotations": []}
    answer["tool_calls"] = None
    request = schema.read_chat(CHAT | {"messages": [*CHAT["messages"], answer]})
    assert [message.text for message in request.messages] == ["hi", "x"]


def test_parts_of_text_stand_one_after_another() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    (message,) = schema.read_chat(CHAT | {"messages": [{"role": "user", "content": parts}]}).messages
    assert message.text == "one two"


@pytest.mark.parametrize(
    ("prompt", "single"),
    [("hi", "hi"), (["hi"], "hi"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ([[]], ()), ("", "")],
)
def test_one_prompt_in_all_its_shapes(prompt: Any, single: Any) -> None:
    assert schema.single_prompt(schema.read_completion(TEXT | {"prompt": prompt}).prompt) == single


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        (["a", "b"], Code.INVALID_REQUEST),
        ([[1], [2]], Code.INVALID_REQUEST),
        ([1, "a"], Code.INVALID_REQUEST),
        (["a", 1], Code.INVALID_REQUEST),
        ([1, [2]], Code.INVALID_REQUEST),
        ([True], Code.INVALID_REQUEST),
        ([-1], Code.INVALID_REQUEST),
        ([1.0], Code.INVALID_REQUEST),
        ([2**31], Code.INVALID_REQUEST),
        (None, Code.INVALID_REQUEST),
        ([None], Code.INVALID_REQUEST),
        ({"a": 1}, Code.INVALID_REQUEST),
        ([], Code.EMPTY_PROMPT),
    ],
)
def test_other_prompts_are_refused(prompt: Any, code: Code) -> None:
    refused = refusal_of_text(prompt=prompt)
    assert refused.code is code
    assert refused.param is not None
    assert refused.param.startswith("prompt")


@pytest.mark.parametrize("body", [None, [], "x", 5, [{}]])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    for read in (schema.read_chat, schema.read_completion):
        with pytest.raises(Refused) as caught:
            read(body)
        assert caught.value.code is Code.INVALID_REQUEST


def test_a_refusal_shows_no_endless_names() -> None:
    assert len(refusal_of_chat(**{"x" * 100_000: 1}).body()) < 1000
