"""The base of every part of a broker: scheduler, timer, purgatory, and care for the interpreter and its limits.

Each module is a door: ``scheduler`` and ``timer`` for work to come, ``woken_thread`` for work when something changes,
``purgatory`` for requests that wait, ``yielding``
and ``gc_pause`` for long work, ``file_limit`` for descriptors, ``few_lines`` and ``refused_logins`` for what others could
fill the log with, ``allowance`` for what each of them may have a second, ``gauges_file`` for what a process tells of itself.
Nothing here knows Kafka's terms.
"""

__all__ = [
    "allowance",
    "few_lines",
    "file_limit",
    "gauges_file",
    "gc_pause",
    "purgatory",
    "refused_logins",
    "scheduler",
    "timer",
    "woken_thread",
    "yielding",
]
