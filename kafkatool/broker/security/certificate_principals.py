"""Who a client's certificate is: its subject as Java writes it, through ssl.principal.mapping.rules (SEC-72, 73).

Source: Kafka 2.8.0 sec/ssl/SslPrincipalMapper.java (KIP-371, 492); X500Principal.getName of Java, which is RFC 2253.
"""

import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from kafkatool.core.errors import ConfigError

log = logging.getLogger(__name__)

DEFAULT: Final = "DEFAULT"
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS: Final = frozenset({12, 19, 20, 22, 27, 30})
"""The tags of what Java writes as text: UTF8, Printable, T61, IA5, General and BMPString, all of them read as UTF-8."""
_ESCAPED: Final = ',=+<>#;"\\'
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_CHOICES = re.compile(r"[*+?{|]")
_NOT_PYTHON = re.compile(r"[*+?}]\+|\\[pP]\{|&&|\\[GQEXhHRvVzZ]|(?<!\\)\[(?:\\.|[^]\\[])*\[")
_LINE_END = re.compile("[\n\r\x85\u2028\u2029]")
_GROUP = re.compile(r"\$(\d)")
_LONGEST_SUBJECT: Final = 8192  # characters
_LONGEST_MATCH_S: Final = 0.05  # of processor time
_MATCH_APART: Final = """
import json, re, signal, sys
pattern, subject = json.load(sys.stdin)
compiled = re.compile(pattern, re.ASCII)
signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[1]))
match = compiled.fullmatch(subject)
print(json.dumps(match and [match[0], *match.groups()]))
"""


# --- the subject -----------------------------------------------------------------------------------------------------


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, most specific part first."""
    from cryptography import x509  # when a certificate is there, not before

    return subject_text(x509.load_der_x509_certificate(certificate).subject.public_bytes())


def subject_text(name: bytes) -> str:
    """Return a Name in DER as Java does: known keywords, else the OID, with the value in hex."""
    parts = [
        "+".join(_attribute(attribute) for _, _, attribute in _elements(rdn)) for _, _, rdn in _elements(_inside(name))
    ]
    return ",".join(reversed(parts))


def _attribute(data: bytes) -> str:
    (_, _, oid), (tag, whole, value) = _elements(data)
    dotted = _dotted(oid)
    if dotted not in _KEYWORDS or tag not in _TEXTS:
        return f"{_KEYWORDS.get(dotted, dotted)}=#{whole.hex()}"
    return f"{_KEYWORDS[dotted]}={_escape(value.decode(errors='replace'))}"


def _escape(text: str) -> str:
    escaped = "".join("\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in text)
    inner = escaped.strip(" \r")
    if not inner:
        return "".join(f"\\{c}" for c in escaped)
    start = escaped.index(inner)
    before, after = escaped[:start], escaped[start + len(inner) :]
    return "".join(f"\\{c}" for c in before) + inner + "".join(f"\\{c}" for c in after)


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, whole element and content of each element of DER."""
    while data:
        length, header = data[1], 2
        if length & 0x80:
            header += length & 0x7F
            length = int.from_bytes(data[2:header], "big")
        yield data[0], data[: header + length], data[header : header + length]
        data = data[header + length :]


def _inside(element: bytes) -> bytes:
    return next(_elements(element))[2]


def _dotted(oid: bytes) -> str:
    numbers, value = [], 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# --- the rules -------------------------------------------------------------------------------------------------------


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """Return the name, or None for a subject of another form, or one that cannot be told in time."""
        if self.pattern is None:
            return subject
        groups = _groups_of(self.pattern, subject)
        if groups is None:
            return None
        name = _GROUP.sub(lambda group: groups[int(group[1])] or "", self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


def _groups_of(pattern: re.Pattern[str], subject: str) -> list[str | None] | None:
    """Match the whole subject; return all of it and the groups.

    With two or more choices to go back to, a match may take for ever; nobody can stop it then, and all other threads
    stand still. Such a one runs in a process of its own, which the system ends when its time is over: that counts as
    none. It costs some 30 ms, once for each subject (``parse_mapping_rules``). So does a subject with an end of a line, of
    which Java's ``.`` and ``$`` know more.
    """
    if len(subject) > _LONGEST_SUBJECT or _LINE_END.search(subject):
        return None
    if len(_CHOICES.findall(pattern.pattern)) < 2:
        match = pattern.fullmatch(subject)
        return match and [match[0], *match.groups()]
    command = [sys.executable, "-I", "-S", "-c", _MATCH_APART, str(_LONGEST_MATCH_S)]
    asked = json.dumps([pattern.pattern, subject])
    apart = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=False)
    if apart.returncode == -signal.SIGVTALRM:
        log.warning("a rule of ssl.principal.mapping.rules took too long over %a, which counts as no match", subject)
        return None
    apart.check_returncode()
    found: list[str | None] | None = json.loads(apart.stdout)
    return found


def parse_mapping_rules(text: str, said: str = "ssl.principal.mapping.rules") -> Callable[[str], str | None]:
    """Read the rules; return what gives a subject its name, None where no rule does. Raises ConfigError."""
    rules = list(_rules(text.strip() or DEFAULT, said))

    @lru_cache(1000)
    def name_of(subject: str) -> str | None:
        return _first(rules, subject)

    return name_of


def _first(rules: Sequence[_Rule], subject: str) -> str | None:
    return next((name for rule in rules if (name := rule.apply(subject)) is not None), None)


def _rules(text: str, said: str) -> Iterator[_Rule]:
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise ConfigError(f"{said}: expected DEFAULT or RULE:pattern/replacement/[L|U] at {text[at:]!r}")
        at = match.end()
        if match[1]:
            yield _Rule(None, "", "")
            continue
        pattern = match[2].replace("\\/", "/")
        if found := _NOT_PYTHON.search(pattern):
            raise ConfigError(f"{said}: {found[0]} of {pattern!r} means something else here than in Java")
        try:
            # Java's \w, \d, \s and (?i) know ASCII alone: by others' letters somebody else would get a name.
            compiled = re.compile(pattern, re.ASCII)
        except (re.error, ValueError) as e:  # the latter: (?u)
            raise ConfigError(f"{said}: {pattern!r}: {e}") from e
        replacement = re.sub(r"\\(.)", r"\1", match[3])
        if any(int(group) > compiled.groups for group in _GROUP.findall(replacement)):
            raise ConfigError(f"{said}: {replacement!r} names a group that {pattern!r} does not have")
        yield _Rule(compiled, replacement, match[4])
