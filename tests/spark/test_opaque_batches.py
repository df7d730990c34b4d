"""The bytes that a producer made are the bytes that Spark's workers hold."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from ortoo.verification.runs.made_batches import record_sealed_batches
from tests.spark.sending import send, varied
from tests.spark.session import Broker


def test_workers_hold_the_producers_own_bytes(
    spark: Any, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their hash: each batch that a worker reads is one that the producer encoded, and none is missing."""
    made = record_sealed_batches(monkeypatch)
    send(broker, topic, varied(5_000))
    address = broker.address

    def hashes(places: Iterator[tuple[str, str, int]]) -> Iterator[str]:
        """Runs in a worker, over the link that the data source reads by."""
        from hashlib import sha256

        from ortoo.client import Queue
        from ortoo.spark.core.cluster_options import ClusterOptions
        from ortoo.spark.core.link import link_to

        for place in places:
            for received in link_to(ClusterOptions((address,))).fetch(Queue(*place), 0, 0):
                yield sha256(received.sealed.records).hexdigest()

    places = [(queue.topic, queue.enode, queue.queue_id) for queue in broker.queues(topic)]
    held = spark.sparkContext.parallelize(places, len(places)).mapPartitions(hashes).collect()
    assert len(made) > 1
    assert sorted(held) == sorted(sha256(batch.records).hexdigest() for batch in made)
