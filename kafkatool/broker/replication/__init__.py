"""Replicas, partitions, fetchers and parked requests: the documents' replication (BRK-35 to 106)."""
