import logging

import pytest

from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import ConfigError
from kafkatool.core.model.topic_configs import DOCUMENTED
from tests.broker.storage.logs import broker_config, log_config


@pytest.mark.spec("BRK-125")
def test_broker_settings_are_the_defaults_and_topic_configs_win() -> None:
    broker = broker_config(log_segment_bytes="1000", log_retention_hours="2", log_cleanup_policy="compact")
    config = LogConfig.from_broker(broker, {"segment.bytes": "2000", "cleanup.policy": "delete, compact"})
    assert (config.segment_bytes, config.retention_ms) == (2000, 7_200_000)
    assert config.cleanup_policy == {"delete", "compact"}
    assert config.compacted


@pytest.mark.spec("TOP-21")
def test_the_defaults_are_those_of_the_documents_table() -> None:
    """Where Kafka's versions differ, those of 0.10."""
    config = LogConfig.from_broker(BrokerConfig.from_properties({"zookeeper.connect": "x:1"}), {})
    assert {c.name: getattr(config, c.name.replace(".", "_")) for c in DOCUMENTED} == {
        "cleanup.policy": {"delete"},
        "delete.retention.ms": 86_400_000,
        "file.delete.delay.ms": 60_000,
        "flush.messages": 2**63 - 1,
        "flush.ms": 2**63 - 1,
        "index.interval.bytes": 4096,
        "max.message.bytes": 1_000_012,
        "min.cleanable.dirty.ratio": 0.5,
        "min.insync.replicas": 1,
        "retention.bytes": -1,
        "retention.ms": 604_800_000,
        "segment.bytes": 1_073_741_824,
        "segment.index.bytes": 10_485_760,
        "segment.jitter.ms": 0,
        "segment.ms": 604_800_000,
        "unclean.leader.election.enable": True,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment_bytes", "13"),
        ("retention_ms", "soon"),
        ("retention_bytes", "much"),
        ("cleanup_policy", "shred"),
        ("preallocate", "yes"),
        ("compression_type", "zip"),
        ("min_cleanable_dirty_ratio", "1.5"),
        ("min_insync_replicas", "0"),
        ("message_timestamp_type", "Never"),
    ],
)
def test_an_impossible_value_is_named_and_the_default_counts(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert log_config(**{name: text}) == log_config()
    assert f"{name.replace('_', '.')}={text}" in caplog.text


def test_what_kafka_0_10_takes_is_taken() -> None:
    config = log_config(retention_ms="-5", retention_bytes="-2", segment_ms="0")
    assert (config.retention_ms, config.retention_bytes, config.segment_ms) == (-5, -2, 0)


def test_a_name_of_a_newer_kafka_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_config(remote_storage_enable="true", segment_bytes="100")
    assert "remote.storage.enable=true" in caplog.text


def test_records_are_looked_into_only_where_a_rule_needs_them() -> None:
    assert not log_config().needs_records
    assert not log_config(message_timestamp_difference_max_ms=str(NO_LIMIT)).needs_records
    assert log_config(message_timestamp_difference_max_ms="1000").needs_records
    assert log_config(cleanup_policy="compact").needs_records
    assert LogConfig.from_broker(broker_config(kt_validate_records="full"), {}).needs_records


@pytest.mark.spec("ADM-89")
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        *[(v, 0) for v in ("0.8.2", "0.9.0", "0.9.0.1")],
        *[(v, 1) for v in ("0.10.0", "0.10.0-IV1", "0.10.2", "0.10.2.2")],
        *[(v, 2) for v in ("0.11.0", "0.11.0-IV0", "1.0", "2.3-IV1", "2.8", "3.9")],
    ],
)
def test_the_version_told_decides_the_format(version: str, expected: int) -> None:
    assert log_config(message_format_version=version).record_format == expected
    broker = broker_config(log_message_format_version=version)
    assert LogConfig.from_broker(broker, {}).record_format == expected
    assert LogConfig.from_broker(broker, {"message.format.version": "2.0"}).record_format == 2
    assert LogConfig.from_broker(broker_config(), {"message.format.version": version}).record_format == expected


@pytest.mark.spec("ADM-89")
@pytest.mark.parametrize(("protocol", "expected"), [("0.10.0", 1), ("0.10.2", 1), ("0.11.0", 2), ("2.3", 2)])
def test_no_format_is_written_that_brokers_of_the_protocol_do_not_know(protocol: str, expected: int) -> None:
    for told in ({}, {"log_message_format_version": "2.8"}):
        broker = broker_config(inter_broker_protocol_version=protocol, **told)
        assert LogConfig.from_broker(broker, {}).record_format == expected
        assert LogConfig.from_broker(broker, {"message.format.version": "1.1"}).record_format == expected
        assert LogConfig.from_broker(broker, {"message.format.version": "0.9.0"}).record_format == 0
    assert broker_config(inter_broker_protocol_version=protocol).log_message_format_version == protocol


@pytest.mark.spec("ADM-89")
@pytest.mark.parametrize("version", ["", "new", "2", "2.x", "2.3-IVx", "-1.0"])
def test_what_is_no_version_is_refused_by_the_broker_and_not_counted_of_a_topic(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert log_config(message_format_version=version).record_format == 2
    assert f"message.format.version={version} cannot be used" in caplog.text
    if version:  # an empty property counts as absent
        with pytest.raises(ConfigError, match=f"log.message.format.version={version}: must be a version of Kafka"):
            broker_config(log_message_format_version=version)
