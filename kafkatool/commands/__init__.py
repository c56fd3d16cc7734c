"""The kt command line: options in, a core operation, its result rendered. The only place that knows click and rich.

`main` is the root; each command is a room or a module beside it. They share `shared` (flags, output, settings, signals),
`completion` (live values for the shell) and `lazy` (groups that import on use). No command imports another one, and only
`servers` imports the broker.
"""

__all__ = ["main"]
