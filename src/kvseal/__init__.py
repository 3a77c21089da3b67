"""kvseal: language models for many tenants, where no request is answered from another request's memory."""

from typing import Final

__version__: Final = "0.1.0"

__all__ = ["__version__"]
