"""The package builds with and without a compiler, with and without the C sources."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build_wheel(tmp_path: Path, *, c_sources: bool, **environ: str) -> zipfile.ZipFile:
    """Build a wheel of a copy of the sources, as pip does it, and open it."""
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    )
    for name in ("pyproject.toml", "setup.py", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    if (ROOT / "README.md").exists():
        shutil.copy(ROOT / "README.md", source / "README.md")
    if not c_sources:
        for path in source.rglob("*.c"):
            path.unlink()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        "out",
        ".",
    ]
    done = subprocess.run(
        command, cwd=source, capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (source / "out").glob("kvseal-*.whl")
    return zipfile.ZipFile(wheel)


def shared_objects(wheel: zipfile.ZipFile) -> list[str]:
    return [name for name in wheel.namelist() if name.endswith(".so")]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no compiler here")
def test_a_compiler_gives_one_wheel_for_every_python(tmp_path: Path) -> None:
    with build_wheel(tmp_path, c_sources=True) as wheel:
        assert "kvseal/memory/_native.abi3.so" in shared_objects(wheel)
        assert "-cp311-abi3-linux" in (wheel.filename or "")


def test_without_a_compiler_the_package_is_pure_python(tmp_path: Path) -> None:
    with build_wheel(tmp_path, c_sources=True, CC="/nonexistent/cc") as wheel:
        assert shared_objects(wheel) == []
        assert "kvseal/cli.py" in wheel.namelist()
        assert "kvseal/py.typed" in wheel.namelist()


def test_without_the_c_sources_the_package_is_pure_python(tmp_path: Path) -> None:
    with build_wheel(tmp_path, c_sources=False) as wheel:
        assert shared_objects(wheel) == []
        assert "-py3-none-any" in (wheel.filename or "")
