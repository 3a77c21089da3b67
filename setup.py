"""The C extensions. Everything else about the package stands in pyproject.toml.

Each is optional: where no compiler, no header or no source is found, the install succeeds without it and
the package takes the numpy path. The limited API (abi3) makes one build serve every CPython from 3.11 on.
"""

from pathlib import Path

from setuptools import Extension, setup

ABI3_VERSION_HEX = "0x030B0000"
ABI3_TAG = "cp311"

# To add one: "package.module": ["source", ...]. A source that is not there yet is skipped.
NATIVE_SOURCES = {
    "kvseal.memory._native": ["src/kvseal/memory/_native.c"],
    "kvseal.engine._attention": ["src/kvseal/engine/_attention.c"],
}


def native_extensions() -> list[Extension]:
    here = Path(__file__).parent
    return [
        Extension(
            name,
            sources,
            optional=True,
            py_limited_api=True,
            depends=[str(header) for header in here.joinpath(sources[0]).parent.glob("*.h")],
            define_macros=[("Py_LIMITED_API", ABI3_VERSION_HEX)],
            # No -march: a wheel must run on machines other than the one that built it. Code that wants wider
            # vectors picks them at run time.
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
        )
        for name, sources in NATIVE_SOURCES.items()
        if all((here / source).is_file() for source in sources)
    ]


EXTENSIONS = native_extensions()

setup(
    ext_modules=EXTENSIONS,
    options={"bdist_wheel": {"py_limited_api": ABI3_TAG}} if EXTENSIONS else {},
)
