"""The pytest plugin that a test suite gets by installing kafkatool.

Door: `plugin`, which pytest loads by the entry point `pytest11`. The product imports nothing of it, and loading it imports
no broker: every pytest run pays for that.
"""
