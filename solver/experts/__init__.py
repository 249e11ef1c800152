"""Expert placement: replicas and slots per layer, with a bound beside each."""

from solver.experts.bounds import load_bounds
from solver.experts.place import LayerPlacements, place_layers

__all__ = ["LayerPlacements", "load_bounds", "place_layers"]
