"""Clients of Redis by URL: one server, servers watched by Sentinels, or a cluster.

* `redis://[USER:PASSWORD@]HOST:6379/0`
* `redis+sentinel://[USER:PASSWORD@]HOST:26379,HOST:26379/0?service=NAME`, perhaps with `sentinel_username` and
  `sentinel_password`
* `redis+cluster://[USER:PASSWORD@]HOST:6379,HOST:6379`

With `rediss` in place of `redis` all connections use TLS.
"""

from typing import Any
from urllib.parse import parse_qsl, urlencode

from ortoo.common.cluster.addresses import is_address
from ortoo.common.errors import Invalid

CALL_TIMEOUT_S = 2.0
SENTINEL, CLUSTER = "+sentinel", "+cluster"
_SENTINEL_KEYS = ("sentinel_username", "sentinel_password")


def redis_client(url: str) -> Any:
    """A client of the Redis at `url`; the caller limits the time of each call. Errors: Invalid for the URL.

    The client has no `socket_timeout`, because redis.asyncio implements it by `asyncio.wait_for`. Up to Python 3.11,
    `wait_for` swallows the cancellation of a call that has just been written. A cancelled task would then not end.
    """
    try:
        return _client(url, socket_timeout=None, socket_connect_timeout=CALL_TIMEOUT_S, decode_responses=True)
    except ValueError:  # its text may have parts of the password
        raise Invalid(
            "not a URL of Redis; give one like redis://HOST:6379/0, redis+sentinel://HOST:26379,HOST:26379/0?service="
            "NAME or redis+cluster://HOST:6379,HOST:6379. Write / ? # in passwords as %2F %3F %23",
            field="redis_url",
        ) from None


async def close_client(client: Any) -> None:
    """Close a client, and those of its Sentinels. Errors: those of redis."""
    await client.aclose()
    if (pool := getattr(client, "connection_pool", None)) is not None:
        await pool.disconnect()  # the client closes only a pool that it made itself
        for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
            await sentinel.aclose()


def key_prefix(url: str, prefix: str) -> str:
    """The prefix of all keys. In a cluster they share a slot, because scripts change several of them at once."""
    return f"{{{prefix}}}" if _kind(url) == CLUSTER else prefix


def _kind(url: str) -> str:
    scheme = url.partition("://")[0]
    return next((kind for kind in (SENTINEL, CLUSTER) if scheme.endswith(kind)), "")


def _client(url: str, **options: Any) -> Any:
    """Errors: ValueError for the URL."""
    # It takes a tenth of a second to import, and a single snode does not need it.
    import redis.asyncio
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    scheme, _, rest = url.partition("://")
    end = min((found for sign in "/?#" if (found := rest.find(sign)) >= 0), default=len(rest))
    authority, tail = rest[:end], rest[end:]
    if "@" in tail:  # errors would show a part of the password as the host
        raise ValueError("a password with one of / ? #")
    kind = _kind(url)
    if not kind:
        return redis.asyncio.from_url(url, **options)
    user, at, hosts = authority.rpartition("@")
    if not all(map(is_address, hosts.split(","))):
        raise ValueError("hosts without ports")
    addresses = [(host.strip("[]"), int(port)) for host, _, port in (one.rpartition(":") for one in hosts.split(","))]
    path, _, query = tail.partition("?")
    values = dict(parse_qsl(query, keep_blank_values=True))
    service, sentinel = values.pop("service", ""), {key: values.pop(key, "") for key in _SENTINEL_KEYS}
    parsed: dict[str, Any] = dict(
        parse_url(f"{scheme.removesuffix(kind)}://{user}{at}{hosts.split(',')[0]}{path}?{urlencode(values)}")
    )
    parsed |= {"ssl": True} if parsed.pop("connection_class", None) is not None else {}
    del parsed["host"], parsed["port"]
    if kind == CLUSTER:
        return _cluster_client(addresses, {key: value for key, value in parsed.items() if key != "db"} | options)
    if not service:
        raise ValueError("no service")
    watching: dict[str, Any] = {key.removeprefix("sentinel_"): value for key, value in sentinel.items() if value}
    # After the first Sentinel that cannot be reached, the next one is asked at once.
    watching |= {"retry": Retry(NoBackoff(), 0)}
    watching |= {key: value for key, value in parsed.items() if key.startswith("ssl")} | options
    connect: Any = redis.asyncio.Sentinel
    return connect(addresses, sentinel_kwargs=watching, **parsed, **options).master_for(service)


def _cluster_client(addresses: list[tuple[str, int]], options: dict[str, Any]) -> Any:
    from redis.asyncio.cluster import ClusterNode, RedisCluster

    if not hasattr(RedisCluster, "pubsub"):
        raise Invalid(
            "the installed package redis cannot subscribe in a cluster; install redis 8.1 or later", field="redis_url"
        )
    return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in addresses], **options)
