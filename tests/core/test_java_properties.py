"""Values as Java itself reads them from a file."""

from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.java_properties import escape, parse_properties


@given(st.text().map(str.strip))
def test_what_is_escaped_is_ascii_and_read_back(value: str) -> None:
    written = escape(value)
    assert written.isascii() and "\n" not in written
    read = parse_properties(f"key={written}\n")["key"]
    assert read.encode("utf-16", "surrogatepass").decode("utf-16") == value


def test_a_path_beyond_ascii() -> None:
    assert escape("/tmp/jörg/a b") == "/tmp/j\\u00f6rg/a b"
    assert escape("c:\\x") == "c:\\u005cx"
