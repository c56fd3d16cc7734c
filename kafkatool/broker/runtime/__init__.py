"""What every part of a broker runs on: scheduler, timer, purgatory, and manners towards the interpreter.

Nothing here knows Kafka's terms.
"""
