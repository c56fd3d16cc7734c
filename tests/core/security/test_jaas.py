import pytest

from kafkatool.core.errors import ConfigError
from kafkatool.core.security.jaas import parse_jaas, parse_module

TEXT = r"""
// of ZooKeeper
Client { /* one
  module */
  org.apache.zookeeper.server.auth.DigestLoginModule required
  username="kafka" password="a \"b\" \\ ; }";  # the end
};
Other { a.B optional x=1; c.D sufficient y='2'; };
"""


@pytest.mark.spec("SEC-3")
def test_sections_modules_options_quotes_and_comments_are_read() -> None:
    sections = parse_jaas(TEXT, "jaas.conf")
    (module,) = sections["Client"]
    assert (module.short_name, module.option("username")) == ("DigestLoginModule", "kafka")
    assert module.option("password") == r'a "b" \ ; }'
    assert [(m.name, m.option("x"), m.option("y")) for m in sections["Other"]] == [
        ("a.B", "1", None),
        ("c.D", None, "'2'"),
    ]
    assert "kafka" not in repr(module)


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Client {\n a.B required x=1 }", "f, line 2: expected an option or ';'"),
        ("Client {\n a.B required x; };", "f, line 2: expected '='"),
        ("Client {\n a.B needed; };", "f, line 2: expected required, requisite, sufficient, optional before this"),
        ('Client {\n a.B required\n x="1; };', "f, line 3: expected a closing quote"),
        ("Client", "f, line 1: expected '{'"),
        ("Client { };\nX", "f, line 2: expected '{'"),
        ("Client { }", "f, line 1: expected ';'"),
        ("Client { a.B required x=; };", "f, line 1: expected a value for x"),
    ],
    ids=str,
)
def test_a_wrong_file_is_told_by_line_and_what_was_expected(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_jaas(text, "f")
    assert str(refused.value) == told


@pytest.mark.spec("SEC-33")
def test_one_module_without_section_is_what_a_client_has() -> None:
    module = parse_module('x.PlainLoginModule required username="a" password="b";', "sasl.jaas.config")
    assert module.short_name == "PlainLoginModule"
    with pytest.raises(ConfigError, match="expected one module and no more"):
        parse_module("x.A required; x.B required;", "sasl.jaas.config")
