"""Slips of who asks for a cluster or a fault: refused at once, with what was probably meant; of others nobody would hear."""

import difflib
from collections.abc import Iterable, Mapping

from kafkatool.core.errors import RefusedError


def meant(name: object, known: Iterable[str]) -> str:
    """Return words to end a refusal with: what of the known ones the name may stand for; empty if it is like none."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f": did you mean {near[0]}?" if near else ""


def require_number(name: str, value: object, *, least: int) -> None:
    """Raise RefusedError for what is no whole number, or a smaller one."""
    if not isinstance(value, int) or value < least:
        raise RefusedError(f"{name}={value!r}: a number is wanted, {least} or more")


def refuse_unknown(options: Iterable[str]) -> None:
    """Raise RefusedError for a broker option that no broker reads: a test with a misspelt one tests something else."""
    # Here: to load them takes a tenth of a one-broker start.
    from kafkatool.broker.settings.config import BrokerConfig
    from kafkatool.broker.settings.listeners import is_read_of_one_listener

    known = BrokerConfig.property_names()
    for name in options:
        if name not in known and not is_read_of_one_listener(name, known):
            raise RefusedError(f"no broker option {name}{meant(name, known)}")


def require_properties(broker_id: int, made: object, before: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a caller's ``adjust`` made of a broker's properties. Raises RefusedError if that cannot be meant."""
    if not isinstance(made, Mapping):
        raise RefusedError(
            f"adjust({broker_id}, ...) returned {made!r}: a dict is wanted of the properties that broker {broker_id} is to "
            "have besides, {} for none"
        )
    for name, value in made.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise RefusedError(f"adjust({broker_id}, ...) returned {name!r}: {value!r}: properties are texts")
    if added := made.keys() - before.keys():
        refuse_unknown(sorted(added))
    return made
