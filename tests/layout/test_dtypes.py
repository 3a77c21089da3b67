"""Number formats by name, and the choice that the processor suggests."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvseal.layout import default_dtype, item_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 sse\n", "bfloat16"),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", "bfloat16"),
        ("Features\t: fp asimd bf16 i8mm\n", "bfloat16"),
        ("flags\t\t: fpu avx512f avx2\n", "float32"),
        ("model name\t: avx512_bf16 in its name only\nflags\t: fpu\n", "float32"),
        ("", "float32"),
    ],
)
def test_bfloat16_only_where_the_processor_computes_with_it(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert default_dtype(path) == expected


def test_unreadable_cpuinfo_means_float32(tmp_path: Path) -> None:
    assert default_dtype(tmp_path / "none") == "float32"


def test_sizes_of_numbers() -> None:
    assert (item_bytes("float32"), item_bytes("bfloat16")) == (4, 2)
    with pytest.raises(ValueError, match=r"float32, bfloat16, not 'float16'"):
        item_bytes("float16")


def test_layouts_need_no_torch() -> None:
    code = "import sys, kvseal.layout; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
