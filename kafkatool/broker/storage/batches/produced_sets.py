"""What a producer sent in the form its log stores, where that is another, with the codes it is told (ADM-89 to 92)."""

import time

from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.storage.batches.append_error import AppendError, TooMuchInsideError
from kafkatool.broker.storage.batches.older_entries import OlderEntries, from_batch, from_set
from kafkatool.broker.storage.log_config import RECORD_BATCHES, LogConfig
from kafkatool.core.errors import CorruptRecordsError, RecordsTooLargeError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.message_sets import read_set_header, up_converted


def as_stored(
    records: bytearray | memoryview, config: LogConfig, *, message_set: bool, origin_client: bool
) -> bytearray | OlderEntries:
    """Return a message set, or else a record batch for a log of format 0 or 1, as the log wants it. Raises AppendError.

    It takes its time, a microsecond or two for each record, with pauses in which other threads come through.
    """
    now_ms = int(time.time() * 1000)
    try:
        if not message_set:
            return from_batch(records, config, now_ms, origin_client=origin_client)
        header = read_set_header(records)
        if header.codec == Codec.ZSTD:
            raise AppendError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is newer than this format")
        if header.log_append_time:
            raise AppendError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
        if config.record_format < RECORD_BATCHES:
            return from_set(records, header, config, now_ms)
        codec = header.codec if config.codec is None else config.codec
        return up_converted(records, header, codec, yielding_gil, most_records=config.max_records_per_batch)
    except RecordsTooLargeError as e:
        raise TooMuchInsideError(str(e)) from e
    except CorruptRecordsError as e:
        raise AppendError(ErrorCode.CORRUPT_MESSAGE, str(e)) from e
