"""Comparing the replicas of partitions, record by record."""
