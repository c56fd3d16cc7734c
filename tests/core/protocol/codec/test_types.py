"""A message class behaves as a dataclass from its first object on, though its ``__init__`` is compiled only then."""

from dataclasses import field, fields, replace
from typing import Annotated

import pytest

from kafkatool.core.protocol.codec.types import Int32, Since, message


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
