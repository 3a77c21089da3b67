"""Sources about the same server come together; sources about others do not."""

from pathlib import Path

from kvseal.fleet.environment import read_environment
from kvseal.fleet.facts import Key
from kvseal.fleet.gather import Inputs, gather, split_role
from kvseal.fleet.packages import image_facts, read_engine_version, read_packages

LAUNCH = "python3 -m sglang.launch_server --model-path /models/GLM-5.3 --disaggregation-mode {role}\n"
LOG = (
    "[2026-08-27 09:58:12] server_args=ServerArgs(model_path='zai-org/GLM-5.3', host='127.0.0.1', "
    "disaggregation_mode='{role}')\n"
    "[2026-08-27 10:03:55 TP0] max_total_num_tokens=500, chunked_prefill_size=1, context_len=900\n"
)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_log_and_command_of_one_role_are_one_server(tmp_path: Path) -> None:
    script = write(tmp_path / "run.sh", LAUNCH.format(role="prefill") + LAUNCH.format(role="decode"))
    log = write(tmp_path / "d.log", LOG.format(role="decode"))
    fleet = gather(Inputs(commands=[script], logs=[log], engine_versions=["sglang==0.5.20"]))
    told = {server.one(Key.ROLE): server.values(Key.POOL) for server in fleet.servers}
    assert told == {"prefill": (), "decode": (500,)}
    assert all(server.values(Key.VERSION) == ("0.5.20",) for server in fleet.servers)


def test_two_servers_of_one_role_stay_apart(tmp_path: Path) -> None:
    logs = [write(tmp_path / f"{n}.log", LOG.format(role="decode")) for n in range(2)]
    script = write(tmp_path / "run.sh", LAUNCH.format(role="decode") * 2)
    assert len(gather(Inputs(commands=[script])).servers) == 2
    merged = gather(Inputs(logs=logs))
    assert {server.one(Key.ROLE) for server in merged.servers} == {"decode"}


def test_an_environment_can_be_given_to_one_role(tmp_path: Path) -> None:
    script = write(tmp_path / "run.sh", LAUNCH.format(role="prefill") + LAUNCH.format(role="decode"))
    variables = write(tmp_path / "d.env", "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0\n")
    fleet = gather(Inputs(commands=[script], environments=[f"decode={variables}"]))
    told = {server.one(Key.ROLE): server.values(Key.DEFERRED) for server in fleet.servers}
    assert told == {"prefill": (), "decode": (False,)}


def test_roles_are_read_from_the_front_only() -> None:
    assert split_role("decode=a=b.log") == ("decode", "a=b.log")
    assert split_role("a=b.log") == (None, "a=b.log")
    assert split_role("decode=") == (None, "decode=")


def test_loose_facts_alone_make_a_server() -> None:
    (server,) = gather(Inputs(engine_versions=["vllm/vllm-openai:v0.29.0"])).servers
    assert (server.values(Key.ENGINE), server.values(Key.VERSION)) == (("vllm",), ("0.29.0",))


def test_missing_files_become_notes() -> None:
    fleet = gather(
        Inputs(logs=["/no/such"], commands=["/no/such"], packages=["/no/such"], environments=["/no/such"])
    )
    assert fleet.servers == ()
    assert {note.code for note in fleet.notes} == {"cannot-open"}


def test_package_lists_in_their_forms() -> None:
    lines = [
        "sglang==0.5.20",
        "mooncake_transfer_engine_non_cuda   0.3.13.post1",
        "lmcache @ file:///x/lmcache-0.5.2-cp312-cp312-linux_x86_64.whl",
        "vllm @ git+https://example.invalid/vllm@v0.29.0",
        "litellm[proxy]===1.100.0  # pinned",
        "other==1.0",
        "-e .",
    ]
    facts, notes = read_packages("p", lines)
    told = {(fact.key, fact.value) for fact in facts if fact.key is not Key.ENGINE}
    assert told == {
        (Key.VERSION, "0.5.20"),
        (Key.MOONCAKE_VERSION, "0.3.13.post1"),
        (Key.LMCACHE_VERSION, "0.5.2"),
        (Key.VERSION, "0.29.0"),
        (Key.LITELLM_VERSION, "1.100.0"),
    }
    assert notes == []


def test_images_without_a_version_say_so() -> None:
    for image in (
        "lmsysorg/sglang",
        "lmsysorg/sglang:latest",
        "lmsysorg/sglang@sha256:00",
        "lmsysorg/sglang:nightly-dev-20260827-x",
    ):
        facts, notes = image_facts("option", "x", None, image)
        assert [fact.key for fact in facts] == [Key.ENGINE]
        assert [note.code for note in notes] == ["image-without-version"]
    assert image_facts("option", "x", None, "nginx:1.27") == ([], [])
    assert read_engine_version("gibberish")[1][0].code == "unreadable-version"


def test_a_whole_environment_knows_what_is_not_set() -> None:
    facts, _ = read_environment("e", ["A=b", "export SGLANG_USE_PICKLE_IPC='0'", "# X=1", "broken line"])
    told = {fact.key: (fact.value, fact.assumed) for fact in facts}
    assert told[Key.PICKLE_IPC] == (False, False)
    assert told[Key.FAILURE_PROB] == (None, True)
