"""Commands wherever they are written down: scripts, Compose, manifests, units, Dockerfiles."""

import pytest

from kvseal.fleet.commands import commands_in
from kvseal.fleet.facts import Key, Note, Server
from kvseal.fleet.marked_yaml import load_documents


def one(text: str) -> Server:
    (server,) = commands_in("f", text)[0]
    return server


def codes(text: str) -> list[str]:
    return [note.code for note in commands_in("f", text)[1]]


LAUNCH = "python3 -m sglang.launch_server --model-path m"


def test_a_missing_flag_is_its_default_and_says_so() -> None:
    (fact,) = one(LAUNCH).of(Key.ROLE)
    assert (fact.value, fact.assumed) == ("combined", True)
    assert "not set" in fact.source.text


@pytest.mark.parametrize("tail", ['"$@"', "$EXTRA_ARGS", "${FLAGS[@]}", "--config x.yaml", "$(cat flags)"])
def test_hidden_flags_leave_defaults_unknown(tail: str) -> None:
    server = one(f"{LAUNCH} --tp 8 {tail}")
    assert server.of(Key.ROLE) == ()
    assert server.values(Key.TP) == (8,)


def test_flags_keep_their_lines() -> None:
    server = one(f"# comment\nset -e\n{LAUNCH} \\\n  --tp 8 \\\n  --disaggregation-mode decode\n")
    assert server.of(Key.ROLE)[0].source.where == "f:5"
    assert server.of(Key.TP)[0].source.where == "f:4"


def test_variables_are_expanded_where_they_are_known() -> None:
    server = one(
        f"MODE=prefill\nexport N=4\n{LAUNCH} --disaggregation-mode ${{MODE}} --tp ${{TP:-$N}} --dp-size $N"
    )
    assert server.values(Key.ROLE) == ("prefill",)
    assert server.values(Key.DP) == (4,)


def test_an_unknown_variable_is_no_default() -> None:
    server = one(f"{LAUNCH} --disaggregation-mode $MODE")
    assert server.of(Key.ROLE) == ()
    assert "unexpanded-value" in codes(f"{LAUNCH} --disaggregation-mode $MODE")


@pytest.mark.parametrize("value", ["{{ .Values.mode }}", "$(MODE)", "${MODE}", "both", "''"])
def test_a_placeholder_is_no_role(value: str) -> None:
    """It must not pass for a server without disaggregation."""
    assert one(f"{LAUNCH} --disaggregation-mode '{value}'").of(Key.ROLE) == ()


def test_dynamo_has_defaults_of_its_own() -> None:
    assert one("python3 -m dynamo.vllm --model m").of(Key.CONNECTOR) == ()
    assert one("python3 -m dynamo.sglang --model-path m").of(Key.ROLE) == ()


def test_a_misspelt_guard_is_said() -> None:
    text = f"{LAUNCH} --disaggregation-enable-kv-checksums"
    assert commands_in("f", text)[1] == [
        Note(
            "unknown-flag",
            "f:1",
            "--disaggregation-enable-kv-checksums → --disaggregation-enable-kv-checksum?",
        )
    ]


def test_environment_of_the_command_counts_and_the_rest_is_unknown() -> None:
    server = one(f"SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0 {LAUNCH}")
    assert server.values(Key.DEFERRED) == (False,)
    assert server.of(Key.FAILURE_PROB) == ()


def test_docker_run_has_its_own_environment() -> None:
    server = one(f"docker run -e SGLANG_USE_PICKLE_IPC=0 -p 8998:8998 lmsysorg/sglang:v0.5.20-cu126 {LAUNCH}")
    assert server.values(Key.VERSION) == ("0.5.20",)
    assert server.values(Key.PICKLE_IPC) == (False,)
    assert server.values(Key.FAILURE_PROB) == (None,)
    assert server.values(Key.PUBLISHED_PORTS) == ("8998:8998",)


def test_an_env_file_leaves_the_environment_open() -> None:
    assert one(f"docker run --env-file x img {LAUNCH}").of(Key.FAILURE_PROB) == ()
    unit = f"[Service]\nEnvironmentFile=/etc/x\nEnvironment=A=b\nExecStart={LAUNCH}\n"
    assert one(unit).of(Key.FAILURE_PROB) == ()
    assert one(unit.replace("EnvironmentFile=/etc/x\n", "")).values(Key.FAILURE_PROB) == (None,)


def test_compose_lists_and_strings() -> None:
    first_service = "  a:\n    image: vllm/vllm-openai:v0.29.0\n    command: --model m\n"
    text = f"services:\n{first_service}  b:\n    command: {LAUNCH}\n"
    first, second = commands_in("f", text)[0]
    assert (first.name, first.values(Key.ENGINE), first.values(Key.VERSION)) == ("a", ("vllm",), ("0.29.0",))
    assert (second.name, second.values(Key.ENGINE)) == ("b", ("sglang",))


def test_a_secret_reference_is_not_a_value() -> None:
    text = f"""
kind: Pod
metadata: {{name: p}}
spec:
  containers:
    - name: c
      command: ["sh", "-c", "{LAUNCH}"]
      env:
        - name: SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE
          valueFrom: {{configMapKeyRef: {{name: x, key: y}}}}
"""
    assert one(text).of(Key.DEFERRED) == ()
    assert "unreadable-variable" in codes(text)


def test_kv_transfer_config_in_all_its_spellings() -> None:
    config = (
        '{"kv_connector":"NixlConnector","kv_role":"kv_consumer",'
        '"kv_connector_extra_config":{"kv_lease_duration":10}}'
    )
    for text in (
        f"vllm serve m --kv-transfer-config '{config}'",
        f"vllm serve m --kv_transfer_config='{config}'",
    ):
        server = one(text)
        assert server.values(Key.CONNECTOR) == ("NixlConnector",)
        assert server.values(Key.ROLE) == ("decode",)
        assert server.values(Key.LEASE_S) == (10,)
    assert one("vllm serve m --kv-transfer-config '{broken'").of(Key.CONNECTOR) == ()


def test_billion_laughs_are_refused() -> None:
    rows = "\n".join(f"b{row}: &b{row} [{', '.join(['*a'] * 40)}]" for row in range(20))
    assert load_documents(f'a: &a ["x", "x"]\n{rows}') is None
    assert load_documents("[" * 500 + "]" * 500) is None
    assert load_documents("a: !!python/object/apply:os.system [ls]") is None


def test_a_broken_manifest_is_not_read_as_a_script() -> None:
    """Its flags stand on lines of their own; half of them would look like a server without disaggregation."""
    command = f"    command: >\n      {LAUNCH}\n      --disaggregation-mode decode\n"
    text = f"services:\n  x: {{{{ .Values }}}}\n{command}"
    assert commands_in("f", text) == ([], [Note("broken-manifest", "f")])


def test_comments_start_nothing() -> None:
    assert codes(f"# {LAUNCH}\necho done\n") == ["no-known-command"]
