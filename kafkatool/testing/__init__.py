"""What a test suite gets by installing kafkatool: the pytest plugin and its fixtures.

Doors: `plugin`, which pytest loads by the entry point `pytest11`. Nothing here is imported by the product, and loading
the plugin imports neither broker nor client libraries: every pytest run pays for it.
"""
