"""Processes whose disk, power and clock the harness has in its hand: they run unchanged, and know nothing of it (HIS-47)."""
