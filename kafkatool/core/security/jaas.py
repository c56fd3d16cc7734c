"""JAAS login files: sections of login modules with their options (SEC-3).

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka" password="kafka-secret";
    };

``sasl.jaas.config`` of a Kafka client is one module without a section. Comments are ``//``, ``#`` and ``/* */``. Source:
Java's javax.security.auth.login.Configuration; Kafka 2.8.0 common/security/JaasConfig.java.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkatool.core.errors import ConfigError
from kafkatool.core.security.secret import Secret

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      |"(?P<quoted>(?:[^"\\\n]|\\.)*)"
      |(?P<mark>[{};=])
      |(?P<word>[^\s"{};=]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One module. Its options are secret, as nobody knows which of another's are."""

    name: str
    options: Mapping[str, Secret] = field(repr=False)

    @property
    def short_name(self) -> str:
        """Return the last part of its name, by which modules are known."""
        return self.name.rpartition(".")[2]

    def option(self, key: str) -> str | None:
        """Return an option that is no secret."""
        value = self.options.get(key)
        return None if value is None else value.reveal()


Section = Sequence[LoginModule]


class _Token(NamedTuple):
    text: str
    kind: str
    line: int


class _Reader:
    """The tokens of a text, one after the other. ``where`` names the text in errors; no value ever is in one."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._tokens = self._split(text)
        self._next = 0

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ConfigError(f"{self._where}, line {line}: expected a closing quote")
            kind = match.lastgroup or "blank"
            if kind == "quoted":
                tokens.append(_Token(_ESCAPE.sub(r"\1", match[kind]), "value", line))
            elif kind != "blank":
                tokens.append(_Token(match[kind], kind, line))
            line += match[0].count("\n")
            position = match.end()
        tokens.append(_Token("", "end", line))
        return tokens

    @property
    def at_end(self) -> bool:
        return self._tokens[self._next].kind == "end"

    def take(self, mark: str) -> bool:
        """Take that mark if it is next; tell whether it was."""
        token = self._tokens[self._next]
        found = token.kind == "mark" and token.text == mark
        self._next += found
        return found

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.wrong(f"'{mark}'")

    def word(self, what: str) -> str:
        """Take a name; a quoted one is none."""
        return self._take("word", what)

    def value(self, what: str) -> str:
        token = self._tokens[self._next]
        return self._take("value" if token.kind == "value" else "word", what)

    def _take(self, kind: str, what: str) -> str:
        token = self._tokens[self._next]
        if token.kind != kind:
            raise self.wrong(what)
        self._next += 1
        return token.text

    def wrong(self, expected: str) -> ConfigError:
        return ConfigError(f"{self._where}, line {self._tokens[self._next].line}: expected {expected}")


def parse_jaas(text: str, where: str) -> dict[str, Section]:
    """Read a login file: section -> its modules. Raises ConfigError with the line and what was expected there."""
    reader = _Reader(text, where)
    sections: dict[str, Section] = {}
    while not reader.at_end:
        name = reader.value("the name of a section")
        reader.expect("{")
        modules = []
        while not reader.take("}"):
            modules.append(_module(reader))
        reader.expect(";")
        sections[name] = modules
    return sections


def parse_module(text: str, where: str) -> LoginModule:
    """Read the one module of ``sasl.jaas.config``. Raises ConfigError as ``parse_jaas``."""
    reader = _Reader(text, where)
    module = _module(reader)
    if not reader.at_end:
        raise reader.wrong("one module and no more")
    return module


def _module(reader: _Reader) -> LoginModule:
    name = reader.word("a login module")
    if reader.word(f"one of {', '.join(_FLAGS)}").lower() not in _FLAGS:
        raise reader.wrong(f"{', '.join(_FLAGS)} before this")
    options: dict[str, Secret] = {}
    while not reader.take(";"):
        key = reader.word("an option or ';'")
        reader.expect("=")
        options[key] = Secret(reader.value(f"a value for {key}"))
    return LoginModule(name, options)
