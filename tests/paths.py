"""Where the repository's files lie, for tests in whatever room."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
