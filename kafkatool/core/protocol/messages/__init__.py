"""One file per API: its key, its versions, its request and response. Each is its door.

A file here declares data only; what a broker answers is in ``kafkatool/broker/handlers``.
"""
