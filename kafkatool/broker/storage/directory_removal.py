"""Erasing the directory of a deleted partition, in the background."""

import logging
import shutil
from pathlib import Path

log = logging.getLogger(__name__)


def remove_tree(path: Path) -> None:
    """Remove it; what cannot be removed is tried again at the next start (BRK-150)."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass  # somebody else was faster
    except OSError as e:
        log.warning("%s could not be removed: %s", path, e)
