"""The frames of the replication protocol in the log: EPOCH, CONFIGURATION and BEGIN."""

import json
import struct
from dataclasses import asdict

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.log_summary_file import decode_configuration
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.replication.protocol.identity import Configuration
from ortoo.enode.replication.protocol.log_summary import BeginFrame, ConfigurationFrame, EpochFrame, ProtocolFrame

_POSITION = struct.Struct("<Q")
PROTOCOL_KINDS = frozenset({FrameKind.EPOCH, FrameKind.CONFIGURATION, FrameKind.BEGIN})


def configuration_payload(configuration: Configuration) -> bytes:
    """The payload of a CONFIGURATION frame."""
    return json.dumps(asdict(configuration), sort_keys=True).encode()


def begin_payload(log_begin: int) -> bytes:
    """The payload of a BEGIN frame."""
    return _POSITION.pack(log_begin)


def decode_protocol_frame(header: FrameHeader, body: bytes | memoryview) -> ProtocolFrame:
    """Decode a frame of the kind EPOCH, CONFIGURATION or BEGIN. Errors: DataLoss when the frame is not readable."""
    begin, end = header.position, header.end_position
    try:
        if header.kind == FrameKind.EPOCH:
            return EpochFrame(begin, end, header.leader_epoch)
        if header.kind == FrameKind.CONFIGURATION:
            return ConfigurationFrame(end, decode_configuration(json.loads(bytes(body))))
        return BeginFrame(begin, end, *_POSITION.unpack(body))
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise DataLoss(f"the frame at {begin} of the replica set cannot be read: {error}") from error
