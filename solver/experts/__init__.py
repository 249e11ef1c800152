"""Expert placement: replicas and slots per layer, with a bound beside each."""

from solver.experts.bounds import load_bounds
from solver.experts.place import LayerPlacements, place_layers
from solver.experts.windows import WindowPlacements, place_windows

__all__ = [
    "LayerPlacements",
    "WindowPlacements",
    "load_bounds",
    "place_layers",
    "place_windows",
]
