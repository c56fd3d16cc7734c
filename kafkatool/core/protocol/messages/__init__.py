"""One file per API: its key, its versions, its request and response. ``registry`` lists them all.

A file here declares data only; what a broker answers is in ``kafkatool/broker/handlers``.
"""
