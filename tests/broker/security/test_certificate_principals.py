"""Subjects of certificates as text, and names made of them by ssl.principal.mapping.rules."""

import json
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.security.certificate_principals import parse_mapping_rules, subject_text
from kafkatool.core.errors import ConfigError

ALICE = "CN=Alice,OU=Ops,O=Example\\, Inc.,C=SE"

WRITTEN_BY_JAVA: Final = Path(__file__).parents[2] / "data" / "subjects.tsv"
"""Names in DER, and what ``new X500Principal(der).getName()`` of Java 17 made of each."""


@pytest.mark.spec("SEC-72")
def test_subjects_are_written_as_java_writes_them() -> None:
    rows = [line.split("\t") for line in WRITTEN_BY_JAVA.read_text().splitlines()]
    assert len(rows) >= 40
    for name, text in rows:
        assert subject_text(bytes.fromhex(name)) == json.loads(text)


@pytest.mark.spec("SEC-73")
@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("", ALICE, ALICE),
        ("DEFAULT", ALICE, ALICE),
        ("RULE:^CN=(.*?),.*$/$1/", ALICE, "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", ALICE, "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U", ALICE, "ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1@x/L,DEFAULT", ALICE, "ops-alice@x"),
        ("RULE:CN=(.*?)/$1/", ALICE, ALICE[3:]),  # the whole subject has to fit
        ("RULE:CN=([a-z]+)/$1/", ALICE, None),
        ("RULE:CN=Bob.*/bob/, RULE:CN=Alice.*/first/, RULE:.*/second/", ALICE, "first"),
        ("RULE:CN=Bob.*/bob/,DEFAULT,RULE:.*/never/", ALICE, ALICE),
        (r"RULE:CN=(a\/b),.*/$1\/$1/", "CN=a/b,C=SE", "a/b/a/b"),
        (r"RULE:CN=(a\\\\b)/$1/", r"CN=a\\b", r"a\\b"),
        ("RULE:CN=(x)?(.*)/$1$2/", "CN=y", "y"),  # a group without a part of it is empty
        ("RULE:CN=(.*)/$1/", "CN=" + "a" * 9000, None),  # longer than any subject
        # Java 25 says the same of these, whose letters and digits beyond ASCII would make another's name of them.
        (r"RULE:CN=(\w+)/$1/L", "CN=\u212aAFKA", None),
        (r"RULE:CN=(\w+)@(\w+)/$1/L", "CN=\u212aAFKA@X", None),  # matched apart
        (r"RULE:CN=(\d+)/$1/", "CN=\u0661", None),
        (r"RULE:CN=(a)\sb/$1/", "CN=a\u00a0b", None),
        ("RULE:(?i)CN=(kafka)/$1/L", "CN=\u212aafka", None),
        (r"RULE:CN=(\S+)\W/$1/", "CN=x\u0430", "x"),
        ("RULE:CN=(.*)/$1/", "CN=admin\rx", None),
        ("RULE:CN=(.*)/$1/", "CN=admin\u2028", None),
    ],
)
def test_the_first_rule_that_fits_the_whole_subject_gives_the_name(rules: str, subject: str, name: str | None) -> None:
    assert parse_mapping_rules(rules)(subject) == name


@pytest.mark.spec("SEC-73")
@pytest.mark.parametrize(
    "rules",
    [
        r"RULE:CN=(.*+)/$1/",
        r"RULE:CN=(\p{L}+)/$1/",
        r"RULE:CN=([a-z&&[^x]])/$1/",
        r"RULE:CN=(.*\Z)/$1/",
        "RULE:CN=([a[b]])/$1/",  # in Java a or b
        r"RULE:(?u)CN=(\w)/$1/",
        "RULE:CN=(/$1/",
        "RULE:CN=(.*)/$2/",
        "RULE:CN=(.*)/$1/X",
        "RULE:CN=(.*)",
        "default",
    ],
)
def test_what_means_something_else_here_than_in_java_refuses_the_start(rules: str) -> None:
    with pytest.raises(ConfigError, match="where: "):
        parse_mapping_rules(rules, "where")


@pytest.mark.spec("SEC-73")
@pytest.mark.parametrize("pattern", ["CN=((a+)+)b", "CN=(a|a)*b", "CN=(.*)(.*)(.*)(.*)(.*)(.*)b", "CN=(a?){40}a{40}b"])
def test_a_match_that_takes_too_long_is_none_and_is_not_tried_again(
    pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    name_of = parse_mapping_rules(f"RULE:{pattern}/$1/,RULE:CN=.*/late/")
    subject = "CN=" + "a" * 400
    assert name_of(subject) == "late"  # within this life; the rules behind it are asked as ever
    assert name_of(subject) == "late"
    assert caplog.text.count("took too long") == 1
    assert name_of("CN=ab") is not None
