"""The end of a log as a crash of the machine may leave it."""

import random
from pathlib import Path


def tear(data: Path, manner: str, chance: random.Random) -> None:
    """Cut, garble or grow the newest segment of each partition under a dead broker's log dir."""
    for directory in sorted(data.glob("*-[0-9]*")):
        segments = sorted(p for p in directory.iterdir() if p.suffix == ".log")
        if not segments or directory.name.endswith("-delete"):
            continue
        content = bytearray(segments[-1].read_bytes())
        torn = min(len(content), chance.randrange(1, 400))
        match manner:
            case "cut":
                del content[len(content) - torn :]
            case "garbled":
                content[len(content) - torn :] = chance.randbytes(torn)
            case "grown":
                content += bytes(torn) + chance.randbytes(torn)
        segments[-1].write_bytes(content)
