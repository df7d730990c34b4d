"""Apache RocketMQ as its manual recommends: name server, broker with SYNC_FLUSH and proxy, each a process."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.peers import jars
from bench.peers.servers import Servers, java_server
from ortoo.cli.demo.role_subprocess import free_addresses

NAMESRV_HEAP_MIB, BROKER_HEAP_MIB, PROXY_HEAP_MIB = 128, 1024, 512
G1 = (
    "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages",
)  # fmt: skip
"""The options of RocketMQ's own start scripts, apart from sizes and AlwaysPreTouch, which would raise its memory."""
BROKER = """brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
namesrvAddr={namesrv}
brokerIP1=127.0.0.1
listenPort={port}
haListenPort={ha_port}
storePathRootDir={store}
diskMaxUsedSpaceRatio=95
"""
"""All else is the default; other programs' files on the disk do not stop the comparison."""


@asynccontextmanager
async def rocketmq(folder: Path, topics: Sequence[str], queues: int) -> AsyncIterator[Servers]:
    """Run a cluster of one broker in `folder`, which has the topics when it starts. Errors: NotHere, DidNotStart."""
    libraries = jars.bring("rocketmq")
    namesrv, ha, proxy, remoting = (int(one.rpartition(":")[2]) for one in free_addresses(4))
    broker = _port_with_a_free_one_below()
    _write_topics(folder / "store" / "config", topics, queues)
    settings = BROKER.format(namesrv=f"127.0.0.1:{namesrv}", port=broker, ha_port=ha, store=folder / "store")
    (folder / "broker.conf").write_text(settings)
    (folder / "namesrv.conf").write_text(f"listenPort={namesrv}\n")
    said = {
        "rocketMQClusterName": "DefaultCluster", "proxyMode": "CLUSTER", "namesrvAddr": f"127.0.0.1:{namesrv}",
        "grpcServerPort": proxy, "remotingListenPort": remoting,
    }  # fmt: skip
    (folder / "rmq-proxy.json").write_text(json.dumps(said))
    home = str(folder)
    parts = (
        ("namesrv", NAMESRV_HEAP_MIB, namesrv, ("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", "namesrv.conf")),
        ("broker", BROKER_HEAP_MIB, broker, ("org.apache.rocketmq.broker.BrokerStartup", "-c", "broker.conf")),
        ("proxy", PROXY_HEAP_MIB, proxy, ("org.apache.rocketmq.proxy.ProxyStartup", "-pc", "rmq-proxy.json")),
    )
    async with AsyncExitStack() as stack:
        process_ids = {
            name: await stack.enter_async_context(
                java_server(
                    folder,
                    name,
                    libraries,
                    heap_mib,
                    words,
                    port,
                    options=G1,
                    ready="" if name == "proxy" else "boot success",
                    ROCKETMQ_HOME=home,
                    RMQ_PROXY_HOME=home,
                )
            )
            for name, heap_mib, port, words in parts
        }
        yield Servers(f"127.0.0.1:{proxy}", process_ids)


def _port_with_a_free_one_below() -> int:
    """A broker listens on its port and on the second one below it."""
    while True:
        port = int(free_addresses(1)[0].rpartition(":")[2])
        with socket.socket() as below, contextlib.suppress(OSError):
            below.bind(("127.0.0.1", port - 2))
            return port


def _write_topics(folder: Path, topics: Sequence[str], queues: int) -> None:
    """Write topics in the broker's file format; creating them by command would start another Java process."""
    folder.mkdir(parents=True)
    table = {
        name: {
            "topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "order": False,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {"message.type": "NORMAL"},
        }
        for name in topics
    }  # fmt: skip
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    (folder / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))
