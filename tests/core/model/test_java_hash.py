"""Hashes as Java computes them."""

import pytest

from kafkatool.core.model.java_hash import java_bucket, java_int, java_string_hash


@pytest.mark.spec("BRK-64", "GRP-1")
def test_the_hash_of_a_string_is_javas() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("polygenelubricants") == -(2**31)


@pytest.mark.spec("BRK-64", "GRP-1")
def test_the_smallest_int_falls_into_the_first_bucket() -> None:
    assert java_int(2**31) == -(2**31) and java_int(-1) == -1 and java_int(2**32 + 5) == 5
    assert java_bucket(-(2**31), 50) == 0
    assert java_bucket(-7, 5) == java_bucket(7, 5) == 2
