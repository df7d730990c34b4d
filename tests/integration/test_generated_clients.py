"""Clients made of protos/ alone, in languages for which this project has no client."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from ortoo.verification.servers.cluster import open_cluster
from tests.repo.tree import ROOT

CLIENTS = Path(__file__).parent / "generated_clients"
NODE_MODULES = ROOT / "tests/official/node/node_modules"
TIMEOUT_S = 60.0
NOT_FOUND = 5
"""The number of this status in gRPC."""
FIRST = {"offset": 0, "attempt": 1, "body": "AP8=", "tag": "urgent", "keys": ["k-1", "k-2"], "of": "bank"}
SECOND = {"offset": 1, "attempt": 1, "body": "c2Vjb25k", "tag": "", "keys": [], "of": ""}


def command(language: str) -> list[str]:
    """The command that starts the client; the test is skipped where its toolchain is missing."""
    if language == "go":
        built = CLIENTS / "go/.build/client"
        if not built.exists():
            pytest.skip("NO GO, a client generated in Go was NOT tested; install Go 1.23+ and run `make test`")
        return [str(built)]
    node = shutil.which("node")
    if node is None or not NODE_MODULES.exists():
        pytest.skip("NO NODE.JS, a client generated in Node.js was NOT tested; install Node.js 18+, then `make test`")
    return [node, str(CLIENTS / "node/client.js")]


@pytest.mark.parametrize("language", ["go", "node"])
async def test_a_client_of_the_protos_alone_sends_pops_and_acknowledges(language: str, tmp_path: Path) -> None:
    """Bytes, tag, keys and properties arrive unchanged; a nacked message comes again. Nothing is left at the end."""
    words = command(language)
    async with open_cluster(tmp_path) as cluster:
        process = await asyncio.create_subprocess_exec(
            *(*words, cluster.address, str(ROOT / "protos"), str(NODE_MODULES)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, error = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, error.decode()
    assert json.loads(out) == {
        "stored": [0, 1],
        "refused": NOT_FOUND,
        "first": [FIRST, SECOND],
        "again": [SECOND | {"attempt": 2}],
        "lag": 0,
    }
