"""The grammar of a state-change log: from bytes to records, and from records to what they say.

Pure. The forms of each Kafka version are ``forms``; a new one is added there.
"""
