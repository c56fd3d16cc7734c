"""Legal names of topics, and the patterns that select them."""

import pytest

from kafkatool.core.model import topic_names as names


@pytest.mark.spec("TOP-3")
@pytest.mark.parametrize("name", ["a", "A-b_c.9", "n" * 249, "__consumer_offsets", "..."])
def test_legal_names(name: str) -> None:
    names.check_name(name)


@pytest.mark.spec("TOP-3")
@pytest.mark.parametrize("name", ["", ".", "..", "n" * 250, "a b", "a/b", "ä", "a\n"])
def test_illegal_names(name: str) -> None:
    with pytest.raises(names.InvalidTopicError):
        names.check_name(name)


@pytest.mark.spec("TOP-19")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (None, ["a", "b", "ab", "__consumer_offsets"]),
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ('"a.*"', ["a", "ab"]),
        ("'.*'", ["a", "b", "ab", "__consumer_offsets"]),
        ("[ab]", ["a", "b"]),
        (" a b ", ["ab"]),
        ("'\"a|b\"'", ["a", "b"]),
        ('a"b', []),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str | None, found: list[str]) -> None:
    assert names.select(["b", "a", "__consumer_offsets", "ab"], pattern) == sorted(found)


@pytest.mark.spec("TOP-19")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a.b", []),
        ("a.b,c.d", ["c.d"]),
        ("' a.b | c-d '", ["c-d"]),
        ("a.b|c.*", ["c-d", "c.d"]),
        ("a[.-]b", ["a-b"]),
        ("(a.b)", ["a-b"]),
        ("(a,b)-b", ["a-b"]),
        ("", []),
    ],
)
def test_of_what_is_to_be_changed_what_can_be_a_name_is_that_name(pattern: str, found: list[str]) -> None:
    assert names.meant(["c.d", "a-b", "c-d"], pattern) == found


@pytest.mark.parametrize(
    ("pattern", "listed"), [("a.b", ["a.b"]), ("'a, b|c'", ["a", "b", "c"]), ("a.*", None), ("a,b*", None), ("", None)]
)
def test_a_list_of_names_is_told_from_a_regex(pattern: str, listed: list[str] | None) -> None:
    assert names.names_in(pattern) == listed
