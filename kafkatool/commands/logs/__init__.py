"""``kt logs``: merge, timeline and report."""
