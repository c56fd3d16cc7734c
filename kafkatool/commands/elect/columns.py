"""Columns of the answers of ``kt elect``, and what it says beside a report."""

from typing import Final

COLUMNS: Final = ("topic", "partition", "preferred", "leader_before", "leader", "status")
REPORT_COLUMNS: Final = ("broker", "registered", "leaders", "preferred", "led_by_others", "imbalance", "over_threshold")
CAUTION: Final = (
    "Balanced leaders are not balanced load: leaders differ in traffic by orders of magnitude. In production keep "
    "auto.leader.rebalance.enable=false, put an alarm on the imbalance (--report), and elect by hand in small batches "
    "at a quiet hour."
)
