"""Lets these tests import the mutators and their runner."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # last: other folders have a conftest, too
