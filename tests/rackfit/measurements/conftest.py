"""Lets these tests import the results that are damaged elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "fuzz"))  # last: other folders have a conftest, too
