"""A produced message set in the form its log stores, with the codes its producer is told (ADM-90 to 92)."""

from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import CorruptRecordsError, RecordsTooLargeError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.message_sets import read_set_header, up_converted


def as_batch(records: Buffer, config: LogConfig) -> bytearray:
    """Return the set as one record batch. Raises AppendError.

    It takes its time, a microsecond or two for each record, with pauses in which other threads come through.
    """
    try:
        header = read_set_header(records)
        if header.codec == Codec.ZSTD:
            raise AppendError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is newer than this format")
        if header.log_append_time:
            raise AppendError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
        codec = header.codec if config.codec is None else config.codec
        return up_converted(records, header, codec, yielding_gil)
    except RecordsTooLargeError as e:
        raise AppendError(ErrorCode.MESSAGE_TOO_LARGE, str(e)) from e
    except CorruptRecordsError as e:
        raise AppendError(ErrorCode.CORRUPT_MESSAGE, str(e)) from e
