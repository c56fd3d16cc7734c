"""The ways to plan that a person can choose between (RSN-26X)."""

import enum


class Strategy(enum.StrEnum):
    """The way ``generate`` plans (RSN-26X)."""

    KAFKA = "kafka"  # every topic spread anew, as by Kafka's own tool
    MINIMAL = "minimal"  # the fewest moves that even out all topics together
