"""Numbers of bytes as flags take them."""

import click
import pytest

from kafkatool.commands.shared.byte_sizes import ByteCount


@pytest.mark.parametrize("text", ["0", "-1", "52428800"])
def test_a_plain_number_is_taken(text: str) -> None:
    assert ByteCount(min=-1).convert(text, None, None) == int(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("50MB", "write 50000000, or 52428800 for 50 MiB"),
        ("50 mb/s", "write 50000000, or 52428800 for 50 MiB"),
        ("1.5G", "write 1500000000, or 1610612736 for 1.5 GiB"),
        ("4KiB", "write 4096"),
        ("50x", "'50x' is not a valid number of bytes"),
        ("-2", "-2 is not in the range"),
    ],
)
def test_with_a_unit_it_is_told_what_to_write(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        ByteCount(min=-1).convert(text, None, None)
    assert said in refused.value.message
