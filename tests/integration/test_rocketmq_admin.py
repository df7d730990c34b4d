"""The calls of RocketMQ's console."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from apache.rocketmq.v2.admin_pb2 import ChangeLogLevelRequest
from apache.rocketmq.v2.admin_pb2_grpc import AdminStub
from ortoo.verification.servers.processes import process_cluster

PROGRAM = """
from ortoo.common.logs import log_event, logger as logs
log = logs.get_logger("planted")
logs.configure(level="error")
log.emit(log_event.info("quiet", "", ""))
logs.configure(level="debug")
log.emit(log_event.debug("loud", "", ""))
"""


async def test_the_level_of_a_snodes_log_is_changed_while_it_runs(tmp_path: Path) -> None:
    """Every level is accepted and returned; an unknown one is refused."""
    async with process_cluster(tmp_path) as cluster, grpc.aio.insecure_channel(cluster.address) as channel:
        stub = AdminStub(channel)
        for level, said in (("TRACE", "debug"), ("DEBUG", "debug"), ("INFO", "info"), ("WARN", "warning")):
            request = ChangeLogLevelRequest(level=ChangeLogLevelRequest.Level.Value(level))
            assert said in (await stub.ChangeLogLevel(request)).remark
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ChangeLogLevel(ChangeLogLevelRequest(level=9))  # type: ignore[arg-type]
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_loggers_that_exist_follow_the_level() -> None:
    """A logger made before the change logs by the new level."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "quiet" not in done.stderr
    assert "loud" in done.stderr
