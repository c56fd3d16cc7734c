"""Merging the slices of many logs into one, in order of time, with every line accounted for.

Knows no Spark: a slice is merged by pure functions over streams.
"""
