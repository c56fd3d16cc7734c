"""Record batches and the older message sets: headers, records, checksums, compression.

It reads and builds bytes in memory; segments on disk are ``kafkatool/broker/storage``.
"""
