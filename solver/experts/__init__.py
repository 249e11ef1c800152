"""Expert placement: replicas and slots per layer, with a bound beside each."""

from solver.experts.bounds.closed_form import LoadBounds, load_bounds
from solver.experts.place import LayerPlacements, place_layers
from solver.experts.windows.several import WindowPlacements, place_windows

__all__ = [
    "LayerPlacements",
    "LoadBounds",
    "WindowPlacements",
    "load_bounds",
    "place_layers",
    "place_windows",
]
