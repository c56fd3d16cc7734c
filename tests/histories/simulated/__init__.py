"""Histories of a cluster in one thread: real partitions, logs, followers' steps and in-sync writers of three brokers.

Clients, controller, wires and time are written here, so the same seed gives the same history byte for byte, and a
schedule that fails can be shrunk (HIS-48). What needs the real controller or real sockets is seen in ``run`` alone.
"""
