"""RocketMQ's official Python client as a load: `python -m bench.peers.official_python BODY_BYTES`.

It runs in a separate process without Ortoo, because the client brings its own classes for RocketMQ's protocol. Each
line on standard input is a command, `send ADDRESS TOPIC IN_FLIGHT SECONDS`. The answer has the format that
`bench.peers.load` reads.
"""

import json
import logging
import os
import sys
import threading
import time
import warnings

from rocketmq import ClientConfiguration, Credentials, Message, Producer

from bench.percentiles import latency_figures
from bench.report import Figures

OUT, sys.stdout = sys.stdout, sys.stderr  # the client prints to standard output
WARM_UP_S = 1.0


def say(line: str) -> None:
    """Write one line of an answer."""
    print(line, file=OUT, flush=True)


def send(producer: Producer, topic: str, body: bytes, in_flight: int, seconds: float) -> Figures:
    """Send from `in_flight` threads, each one message after another."""
    delays: list[float] = []
    stop_at = time.perf_counter() + seconds

    def one_after_another() -> None:
        while (began := time.perf_counter()) < stop_at:
            message = Message()
            message.topic, message.body = topic, body
            producer.send(message)
            delays.append(time.perf_counter() - began)

    threads = [threading.Thread(target=one_after_another) for _ in range(in_flight)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    return {"messages": len(delays), "per_s": round(len(delays) / elapsed, 1), **latency_figures(delays)}


def main() -> None:
    """Execute commands until standard input ends."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    body = os.urandom(int(sys.argv[1]))
    say("end {}")
    for line in sys.stdin:
        _, address, topic, in_flight, seconds = line.split()
        producer = Producer(ClientConfiguration(address, Credentials()), (topic,))
        producer.startup()
        send(producer, topic, body, int(in_flight), WARM_UP_S)
        say("begin")
        say(f"end {json.dumps(send(producer, topic, body, int(in_flight), float(seconds)))}")
        producer.shutdown()


if __name__ == "__main__":
    main()
