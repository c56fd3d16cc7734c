"""Connections to a broker, as its clients and as other brokers.

``connection`` is the door. It sends what it is given: which request, and what an answer means, is the caller's.
"""
