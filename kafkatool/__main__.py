"""``python -m kafkatool`` is ``kt``."""

from kafkatool.commands.main import main

main()
