"""A cluster with access control, and its users."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from ortoo.client import Client, connect
from ortoo.common.grpc.signature import AUTHORIZATION, DATE_TIME, sign
from ortoo.v1 import namesrv_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

RULES = """
[[user]]
access_key = "ann"
admin = true
[[user]]
access_key = "shop"
topics = { t = "PUB|SUB" }
groups = { g = "SUB", g-tick = "SUB", closed = "DENY" }
[[user]]
access_key = "reader"
topics = { t = "SUB" }
groups = { g = "SUB" }
"""
SECRET = "s3cret"


@contextlib.asynccontextmanager
async def guarded(folder: Path, *, snodes: int = 1, **settings: object) -> AsyncIterator[InProcessCluster]:
    """A cluster with these rules, their users, and topics `t` and `u`."""
    rules = folder / "access.toml"
    rules.write_text(RULES)
    chosen = {"snode": {"access_file": str(rules), **settings}}
    async with open_cluster(folder, snodes=snodes, settings=chosen) as cluster:
        for user in ("ann", "shop", "reader", "nobody"):
            request = namesrv_pb2.PutUserRequest(
                user=namesrv_pb2.User(access_key=user, enabled=True), secret_key=SECRET
            )
            await cluster.name_service.PutUser(request)
        await cluster.create_topic("t", queues=1)
        await cluster.create_topic("u", queues=1)
        yield cluster


def as_user(
    cluster: InProcessCluster, access_key: str, secret_key: str = SECRET
) -> contextlib.AbstractAsyncContextManager[Client]:
    """The cluster as a user sees it."""
    return connect(cluster.address, access_key=access_key, secret_key=secret_key)


def signed(cluster: InProcessCluster, access_key: str, secret_key: str = SECRET) -> tuple[tuple[str, str], ...]:
    """The headers of a call that a user signs now."""
    now = datetime.fromtimestamp(cluster.clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    return signed_headers(access_key, secret_key, now)


def signed_headers(access_key: str, secret_key: str, date_time: str) -> tuple[tuple[str, str], ...]:
    """The headers of a call that is signed as RocketMQ's clients do."""
    digest = sign(secret_key, date_time).hex()
    said = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders={DATE_TIME}, Signature={digest}"
    return ((DATE_TIME, date_time), (AUTHORIZATION, said))
