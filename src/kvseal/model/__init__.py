"""The embedded model: fetched once as a package, converted once, found again at every start. No torch."""

from kvseal.model.embedded import SMOLLM2, EmbeddedModel, Preparation, Reporter, default_home, ensure, locate
from kvseal.model.errors import ModelUnavailable

__all__ = [
    "SMOLLM2",
    "EmbeddedModel",
    "ModelUnavailable",
    "Preparation",
    "Reporter",
    "default_home",
    "ensure",
    "locate",
]
