"""The grammar of a state-change log: what one line is and says, which lines are wanted, and how all are counted.

Doors: ``grammar``, ``details``, ``shapes``, ``selection``. The forms of each Kafka version are ``forms``; a new one is
added there. Pure functions of text: no file is read here.
"""

__all__ = ["details", "forms", "grammar", "selection", "shapes", "tally"]
