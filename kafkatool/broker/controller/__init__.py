"""The ZooKeeper-mode controller: one thread, one queue, decisions as pure functions (CTL)."""
