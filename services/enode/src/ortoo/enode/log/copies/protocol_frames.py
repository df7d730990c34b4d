"""The frames of the replication protocol in the log: EPOCH, MEMBERS and BEGIN."""

import json
import struct
from dataclasses import asdict

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.log_summary_file import decode_configuration
from ortoo.enode.log.frame import FrameHeader, Kind
from ortoo.enode.replication.protocol.identity import Configuration
from ortoo.enode.replication.protocol.log_summary import BeginFrame, EpochFrame, Mark, MembersFrame

_POSITION = struct.Struct("<Q")
WORDS = frozenset({Kind.EPOCH, Kind.MEMBERS, Kind.BEGIN})


def members_payload(configuration: Configuration) -> bytes:
    """The payload of a MEMBERS frame."""
    return json.dumps(asdict(configuration), sort_keys=True).encode()


def begin_payload(log_begin: int) -> bytes:
    """The payload of a BEGIN frame."""
    return _POSITION.pack(log_begin)


def mark_of(header: FrameHeader, body: bytes | memoryview) -> Mark:
    """Decode a frame of these kinds. Errors: DataLoss when it is not readable."""
    begin, end = header.position, header.end_position
    try:
        if header.kind == Kind.EPOCH:
            return EpochFrame(begin, end, header.leader_epoch)
        if header.kind == Kind.MEMBERS:
            return MembersFrame(end, decode_configuration(json.loads(bytes(body))))
        return BeginFrame(begin, end, *_POSITION.unpack(body))
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise DataLoss(f"the frame at {begin} of the replica set cannot be read: {error}") from error
