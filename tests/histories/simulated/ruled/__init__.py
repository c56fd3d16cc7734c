"""The simulated brokers under the product's controller: one of them rules, by a ZooKeeper with sessions that end.

What ``tests.simulation`` does to the controller, and what ``tests.histories.simulated`` does to logs and clients, is in
one run (HIS-48): each broker has the real controller worker, session object and replica manager; LeaderAndIsr,
UpdateMetadata and StopReplica are obeyed by the real handlers; the safety rules of ``tests.simulation`` hold at each write.
Who waits for ZooKeeper lets the rest of the world go on, on top of the stack.
"""
