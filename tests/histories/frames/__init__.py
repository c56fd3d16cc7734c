"""Faults between two frames: proxies that know requests and answers, rules for them, and a sweep over short stories."""
