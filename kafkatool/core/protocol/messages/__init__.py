"""One file per API: its key, its versions, its request and response, and ``error_codes``. Every file is a door.

A file here declares data only; what a broker answers is in ``kafkatool/broker/handlers``.
"""
