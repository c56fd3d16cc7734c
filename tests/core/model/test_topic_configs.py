"""Topic configs: which there are, which values they take, and Kafka's words for the rest."""

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.topic_configs import ACCEPTED, CONFIGS, DOCUMENTED, check_configs, check_names, parse_configs

LONGS = ("0", "9223372036854775807"), ("-1", "9223372036854775808")
ANY_LONG = ("-9223372036854775808", "9223372036854775807"), ("-9223372036854775809", "9223372036854775808")
INTS = ("0", "2147483647"), ("-1", "2147483648")
TABLE = {  # kind, the outermost values that are taken, the next ones, which are not
    "cleanup.policy": ("list", ("delete", "compact", "delete,compact"), ("none", "delete,none")),
    "delete.retention.ms": ("long", *LONGS),
    "file.delete.delay.ms": ("long", *LONGS),
    "flush.messages": ("long", *LONGS),
    "flush.ms": ("long", *LONGS),
    "index.interval.bytes": ("int", *INTS),
    "max.message.bytes": ("int", *INTS),
    "min.cleanable.dirty.ratio": ("double", ("0", "1"), ("-0.01", "1.01")),
    "min.insync.replicas": ("int", ("1", "2147483647"), ("0", "2147483648")),
    "retention.bytes": ("long", *ANY_LONG),
    "retention.ms": ("long", *ANY_LONG),
    "segment.bytes": ("int", ("14", "2147483647"), ("13", "2147483648")),
    "segment.index.bytes": ("int", *INTS),
    "segment.jitter.ms": ("long", *LONGS),
    "segment.ms": ("long", *LONGS),
    "unclean.leader.election.enable": ("boolean", ("true", "false"), ("1",)),
}
NOT_A_NUMBER = {"int": "INT", "long": "LONG", "double": "DOUBLE"}


def refusal(**configs: str) -> str:
    with pytest.raises(RefusedError) as refused:
        check_configs({name.replace("_", "."): value for name, value in configs.items()})
    return str(refused.value)


@pytest.mark.spec("TOP-21", "TOP-22")
def test_the_sixteen_documented_and_the_ten_others() -> None:
    assert [c.name for c in DOCUMENTED] == sorted(c.name for c in DOCUMENTED)
    assert (len(DOCUMENTED), len(ACCEPTED), len(CONFIGS)) == (16, 10, 26)
    assert {c.name: c.kind for c in DOCUMENTED} == {name: kind for name, (kind, _, _) in TABLE.items()}
    assert {c.name for c in ACCEPTED} == {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "message.downconversion.enable",
        *("compression.type", "message.format.version", "message.timestamp.type"),
        *("message.timestamp.difference.max.ms", "min.compaction.lag.ms", "max.compaction.lag.ms", "preallocate"),
    }


@pytest.mark.spec("TOP-21")
@pytest.mark.parametrize("name", TABLE)
def test_each_of_the_sixteen_takes_the_values_of_its_range_and_no_others(name: str) -> None:
    kind, good, bad = TABLE[name]
    for value in good:
        check_configs({name: value})
    for value in (*bad, "", "x"):
        with pytest.raises(RefusedError, match=rf"^Invalid value .* for configuration {name}: "):
            check_configs({name: value})
    if kind in NOT_A_NUMBER:
        with pytest.raises(RefusedError, match=f"Not a number of type {NOT_A_NUMBER[kind]}$"):
            check_configs({name: "x"})


@pytest.mark.spec("TOP-21")
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 14"),
        ("min.insync.replicas", "0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "x",
            "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            "unclean.leader.election.enable",
            "maybe",
            "Invalid value maybe for configuration unclean.leader.election.enable: "
            "Expected value to be either true or false",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "max.message.bytes",
            "9999999999",
            "Invalid value 9999999999 for configuration max.message.bytes: Not a number of type INT",
        ),
        ("flush.ms", "-1", "Invalid value -1 for configuration flush.ms: Value must be at least 0"),
        ("flush.ms", "1_0", "Invalid value 1_0 for configuration flush.ms: Not a number of type LONG"),
        (
            "leader.replication.throttled.replicas",
            "0:1,x",
            "Invalid value [0:1, x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas  must match for format "
            "[partitionId],[brokerId]:[partitionId],[brokerId]:[partitionId],[brokerId] etc",
        ),
        ("nope", "1", "Unknown Log configuration nope."),
    ],
)
def test_a_bad_value_is_refused_in_kafkas_words(name: str, value: str, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_configs({name: value})
    assert str(refused.value) == why


@pytest.mark.spec("TOP-21", "TOP-22")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "compact, delete"),
        ("retention.ms", "-5"),
        ("retention.bytes", "-1"),
        ("flush.messages", "9223372036854775807"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("unclean.leader.election.enable", "TRUE"),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "0:1,12:3"),
        ("follower.replication.throttled.replicas", ""),
        ("message.format.version", "0.10.2"),
        *(("compression.type", codec) for codec in ("uncompressed", "snappy", "lz4", "gzip", "producer", "zstd")),
        ("message.timestamp.type", "CreateTime"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.difference.max.ms", "0"),
        ("min.compaction.lag.ms", "0"),
        ("preallocate", "true"),
    ],
)
def test_a_good_value_is_taken(name: str, value: str) -> None:
    check_configs({name: value})


@pytest.mark.spec("TOP-21")
def test_an_unknown_name_is_told_before_a_bad_value() -> None:
    assert refusal(retention_ms="x", nope="1") == "Unknown Log configuration nope."
    with pytest.raises(RefusedError, match=r"Unknown Log configuration nope\."):
        check_names(["retention.ms", "nope"])


@pytest.mark.spec("TOP-20")
def test_pairs_are_split_at_the_one_equals_sign() -> None:
    assert parse_configs(["retention.ms = 5", "segment.bytes=99", "retention.ms=6"]) == {
        "retention.ms": "6",
        "segment.bytes": "99",
    }


@pytest.mark.spec("TOP-20")
@pytest.mark.parametrize("pair", ["a=b=c", "a", "a=", "=b", ""])
def test_what_is_not_a_pair_is_refused(pair: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_configs([pair])
    assert str(refused.value) == ('Invalid topic config: all configs to be added must be in the format "key=val".')


@pytest.mark.spec("TOP-22")
def test_the_two_bounds_of_compaction_may_not_contradict_each_other() -> None:
    check_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(RefusedError) as refused:
        check_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    assert str(refused.value) == "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)"
    for value in ("0", "-1", "x"):
        with pytest.raises(RefusedError, match=r"^Invalid value "):
            check_configs({"max.compaction.lag.ms": value})
