"""Each query has its own credentials and TLS from its options, which do not affect others of the process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql.types import BinaryType, StructField, StructType

from ortoo.client import Forbidden, Message, Unavailable
from ortoo.spark.core import read_options
from ortoo.spark.reading.batch_read import BatchReader
from tests.integration.guarded_cluster import SECRET, as_user, guarded
from tests.integration.test_tls import certificate

BODY = StructType([StructField("body", BinaryType())])


def bodies(**options: str) -> list[bytes]:
    """The bodies that a query with these options reads."""
    reader = BatchReader(read_options.parse(options, streaming=False), BODY)
    return [body for task in reader.partitions() for batch in reader.read(task) for body in batch["body"].to_pylist()]


async def test_queries_have_their_own_users_and_speak_tls(spark: Any, tmp_path: Path) -> None:
    """A user with the permission reads, one without it is refused in the same process. TLS ports refuse plaintext."""
    made, key = await certificate(tmp_path)
    tls = {"tls_listen_address": "127.0.0.1:0", "tls_certificate_file": str(made), "tls_key_file": str(key)}
    async with guarded(tmp_path, snodes=1, **tls) as cluster:
        async with as_user(cluster, "shop") as mq, mq.producer("t") as producer:
            await producer.send(Message(b"one"))
        secret = cluster.running["snode-0"].tls_address
        plain = {"address": secret, "subscribe": "t", "secretKey": SECRET}
        options = plain | {"tls": "true", "tlsCaFile": str(made)}
        assert SECRET not in repr(read_options.parse(options | {"accessKey": "reader"}, streaming=True))
        for user in ("reader", "shop"):
            assert await asyncio.to_thread(bodies, **options, accessKey=user) == [b"one"]
            with pytest.raises(Forbidden):
                await asyncio.to_thread(bodies, **options, accessKey="nobody")
        with pytest.raises(Unavailable, match="no answer"):
            await asyncio.to_thread(bodies, **plain, accessKey="reader", callTimeoutMs="300ms", callAttempts="1")
        frame = spark.read.format("ortoo").options(**options, accessKey="reader").load()
        assert (await asyncio.to_thread(frame.count)) == 1
        plan = frame._jdf.queryExecution().toString()
        assert SECRET not in plan
        with pytest.raises(Exception, match="Forbidden"):
            await asyncio.to_thread(spark.read.format("ortoo").options(**options, accessKey="nobody").load().count)
