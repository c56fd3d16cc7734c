"""Whether the system was started anew since a log dir noted that nothing in it is in doubt: the power may have failed.

Then of what was not synced any part may be gone. A process that is killed leaves all it has written with the system.
"""

import logging
from pathlib import Path
from typing import Final

from kafkatool.broker.storage.checkpoint import CheckpointDamagedError, read_entries, write_entries

log = logging.getLogger(__name__)

FILE: Final = "kafkatool-boot"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")  # Linux: drawn at each start of the system


def boot_id() -> str | None:
    """Return what this start of the system is called, None where that is not known."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def may_lack_data(directory: Path) -> bool:
    """Tell whether the note in that log dir is of another start of the system. Raises OSError.

    Without a note, as in a directory that Kafka made, nothing is said to lack.
    """
    noted, current = _noted(directory), boot_id()
    return noted is not None and current is not None and noted != current


def note(directory: Path) -> None:
    """Note durably that nothing in it is in doubt at this start of the system. Raises OSError."""
    current = boot_id()
    if current is not None and _noted(directory) != current:
        write_entries(directory / FILE, [current])


def _noted(directory: Path) -> str | None:
    """Return what is noted, None: nothing; of a damaged note what no start of the system is called."""
    try:
        entries = read_entries(directory / FILE, 1)
    except CheckpointDamagedError as e:
        log.warning("%s", e)
        return ""
    return entries[0][0] if entries else None
