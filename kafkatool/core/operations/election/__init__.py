"""Giving leadership back to preferred replicas."""
