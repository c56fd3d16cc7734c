"""Message classes: dataclasses from their first object on, and the same fields in whatever order they are imported."""

import subprocess
import sys
from dataclasses import field, fields, replace
from typing import Annotated

import pytest

from kafkatool.core.protocol.codec.schema import fields_of
from kafkatool.core.protocol.codec.types import GroupedSince, Int32, NullSince, Since, Tagged, Until, message


def test_the_first_object_and_the_next_are_made_as_declared() -> None:
    @message
    class Part:
        number: Int32
        epoch: Annotated[Int32, Since(9)] = -1
        names: list[str] = field(default_factory=list)

    first, second = Part(number=1), Part(number=2, epoch=5, names=["a"])
    first.names.append("b")
    assert (first.number, first.epoch, first.names) == (1, -1, ["b"])
    assert second == Part(number=2, epoch=5, names=["a"]) != first
    assert Part(number=3).names == []
    assert replace(second, epoch=6) == Part(number=2, epoch=6, names=["a"])
    assert [one.name for one in fields(Part)] == ["number", "epoch", "names"]


@pytest.mark.parametrize("used_before", [False, True])
def test_what_does_not_fit_the_declaration_is_a_type_error(used_before: bool) -> None:
    @message
    class Part:
        number: Int32

    @message
    class Other:
        epoch: Int32

    if used_before:
        Other(epoch=1), Part(number=1)
    with pytest.raises(TypeError, match=r"Part\.__init__.*'number'"):
        Part()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Part\.__init__.*'epoch'"):
        Part(number=1, epoch=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Part(1)  # type: ignore[call-arg]
    assert Other(epoch=3).epoch == 3


@pytest.mark.spec("BRK-10")
def test_a_field_keeps_its_own_mark_though_another_of_that_number_was_made_before() -> None:
    """``typing`` of Python 3.11.2 gives an annotation again that equals an earlier one: FindCoordinator 2 lost its end."""
    marks = [kind(3) for kind in (Since, Until, NullSince, GroupedSince, Tagged)]
    assert all(one == other for one in marks for other in marks if one is other)
    assert not any(one == other for one in marks for other in marks if one is not other)

    @message
    class Part:
        since: Annotated[Int32, Since(3)]
        until: Annotated[Int32, Until(3)]
        null: Annotated[str | None, NullSince(3)]
        text: Annotated[str | None, Since(3)]
        tagged: Annotated[Int32, Tagged(3)] = 0
        grouped: Annotated[list[Int32], GroupedSince(3)]
        whole: Annotated[list[Int32], Until(3)]

    told = {f.name: (f.since, f.until < 9, f.null_since < 9, f.grouped_since < 9, f.tag) for f in fields_of(Part)}
    assert told == {
        "since": (3, False, False, False, None),
        "until": (0, True, False, False, None),
        "null": (0, False, True, False, None),
        "text": (3, False, True, False, None),
        "tagged": (0, False, False, False, 3),
        "grouped": (0, False, False, True, None),
        "whole": (0, True, False, False, None),
    }


_DESCRIBE = """
import pkgutil, random, sys
from importlib import import_module
from kafkatool.core.protocol import messages
from kafkatool.core.protocol.codec.schema import Api, Array, Struct, fields_of

def described(cls, depth=0):
    for f in fields_of(cls):
        inner = f.type.element if isinstance(f.type, Array) else f.type
        print(" " * depth, cls.__name__, f.name, f.since, f.until, f.null_since, f.grouped_since, f.tag)
        if isinstance(inner, Struct):
            described(inner.type, depth + 1)

names = sorted(module.name for module in pkgutil.iter_modules(messages.__path__))
random.Random(int(sys.argv[1])).shuffle(names)
for module in [import_module(f"{messages.__name__}.{name}") for name in names]:
    if hasattr(module, "API"):
        described(module.API.request), described(module.API.response)
"""


@pytest.mark.spec("BRK-10")
def test_messages_have_the_same_fields_in_whatever_order_they_are_imported() -> None:
    told = {
        "\n".join(sorted(subprocess.check_output([sys.executable, "-c", _DESCRIBE, str(seed)], text=True).splitlines()))
        for seed in range(4)
    }
    assert len(told) == 1 and told.pop().count("\n") > 700
