"""Fixtures of the Spark tests: a session, a cluster, and a topic for each test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.session import Broker, broker_of, java_found, spark_session

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM on a busy machine starts slowly, which delays the first test that needs it."""
    for item in items:
        if "tests/spark/" in item.nodeid and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Two enodes, a snode and a name server."""
    with broker_of(tmp_path_factory.mktemp("broker")) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session on two cores."""
    if not java_found():
        pytest.skip("NO JAVA, so Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic of eight queues, named after the test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]
    broker.client.admin.create_topic(name, queue_count=4)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder for a test's files."""
    return tmp_path
