"""gRPC's interop test cases with the clients of Java, Go, Node.js and Rust, on both transports: `make interop`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.service import CASES, interop_server

FOLDER = Path(__file__).parents[1] / "interop"
NODE_MODULES = Path(__file__).parent / "node/node_modules/@grpc"
BUILT = {
    "java": FOLDER / "java/.build/Client.class",
    "go": FOLDER / "go/.build/client",
    "node": NODE_MODULES,
    "rust": FOLDER / "rust/target/debug/ortoo-interop",
}
TIMEOUT_S = 100


def command(language: str, address: str, case: str) -> Sequence[str]:
    """The command that runs a case. That of Go is gRPC's own client."""
    host, _, port = address.rpartition(":")
    match language:
        case "java":
            return ("java", "-cp", f"{FOLDER}/java/.build:{FOLDER}/java/.build/*", "Client", address, case)
        case "go":
            return (str(BUILT["go"]), f"-server_host={host}", f"-server_port={port}", f"-test_case={case}")
        case "node":
            return ("node", str(FOLDER / "node/client.js"), address, case)
        case _:
            return (str(BUILT["rust"]), address, case)


@pytest.mark.usefixtures("each_transport")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("language", BUILT)
async def test_a_case_passes(language: str, case: str) -> None:
    """The client's own checks succeed."""
    if not BUILT[language].exists():
        pytest.skip(f"THE CLIENT FOR {language.upper()} IS NOT BUILT, so it was NOT tested; run make interop")
    async with interop_server() as server:
        process = await asyncio.create_subprocess_exec(
            *command(language, server.address, case), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, said.decode()
