"""An object store that speaks S3, as a separate process.

python -m tests.spark.object_store

Prints its port, and exits when its standard input is closed.
"""

import logging
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "lakes"
KEYS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Run one with a bucket; yields the settings for delta-rs and polars."""
    command = [sys.executable, "-m", "tests.spark.object_store"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        with urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=60):
            yield KEYS | {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}
    finally:
        server.communicate(timeout=60)


def main() -> None:
    """Serve until standard input is closed."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
