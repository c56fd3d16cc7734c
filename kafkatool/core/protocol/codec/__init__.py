"""The compiler that turns declared messages into the Python code that encodes and decodes them.

Doors: ``schema`` and ``types``, in which a message is declared, and ``file_region``, a part of a response that is still
in its file. The rest is used by ``frames`` alone. No API is known here.
"""

__all__ = ["compiler", "file_region", "primitives", "schema", "types"]
