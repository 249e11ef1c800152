"""Model specs and the readers that build them from a config.json."""

from costmodel.models.load import load_model
from costmodel.models.spec import ModelSpec

__all__ = ["ModelSpec", "load_model"]
