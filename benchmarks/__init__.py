"""Measurements beside real Kafka 2.8.2 in the same run: ``scripts/benchmark`` prints them as ratios."""
