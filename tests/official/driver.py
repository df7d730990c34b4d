"""The official Python client, driven over standard input and output: a command a line in, answers and events out.

It runs in a separate process without any code of Ortoo. driver.js is the same for the official Node.js client.
"""

import base64
import json
import logging
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    LiteSimpleConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType
from rocketmq.v5.exception import LiteSubscriptionQuotaExceededException

_LOG = logging.getLogger("rocketmq-python-client")
_LOG.handlers = [logging.FileHandler(os.environ["OFFICIAL_LOG"])]
_LOG.handlers[0].setFormatter(logging.Formatter("%(asctime)s %(message)s"))
warnings.simplefilter("ignore")
VERDICTS = {"commit": TransactionResolution.COMMIT, "rollback": TransactionResolution.ROLLBACK}
TLS = {"tls_enable": bool(os.environ.get("OFFICIAL_TLS"))}
OUT = threading.Lock()
STDOUT = sys.stdout
sys.stdout = sys.stderr


def say(line):
    with OUT:
        STDOUT.write(json.dumps(line) + "\n")
        STDOUT.flush()


def plain(message):
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag or None,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "message_group": message.message_group or None,
        "lite_topic": message.lite_topic or None,
        "priority": message.priority or None,
        "attempt": message.delivery_attempt,
        "corrupted": message.corrupted,
        "at_ms": int(time.time() * 1000),
    }


def expression(wanted):
    return FilterExpression(wanted["expression"], FilterType.SQL if wanted.get("sql") else FilterType.TAG)


class Listener(MessageListener):
    def __init__(self, name, failures, busy_s):
        self.name, self.failures, self.busy_s = name, failures, busy_s

    def consume(self, message):
        failed = (message.delivery_attempt or 1) <= self.failures
        say({"event": "message", "consumer": self.name, "failed": failed, **plain(message)})
        if self.busy_s:
            threading.Event().wait(self.busy_s)
        return ConsumeResult.FAILURE if failed else ConsumeResult.SUCCESS


class Checker(TransactionChecker):
    def __init__(self, verdict):
        self.verdict = verdict

    def check(self, message):
        say({"event": "check", "message_id": message.message_id})
        return VERDICTS.get(self.verdict, TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED)


class Driver:
    def __init__(self, address):
        self.address = address
        self.clients, self.received, self.transactions = {}, {}, {}

    def configuration(self, ask):
        credentials = Credentials(*ask.get("credentials", ("", "")))
        return ClientConfiguration(self.address, credentials, request_timeout=ask.get("timeout_s", 10))

    def producer(self, ask):
        checker = Checker(ask["verdict"]) if "verdict" in ask else None
        client = Producer(self.configuration(ask), tuple(ask["topics"]), checker=checker, **TLS)
        client.startup()
        self.clients[ask["name"]] = client

    def send(self, ask):
        message = Message()
        message.topic, message.body = ask["topic"], base64.b64decode(ask["body"])
        if ask.get("tag"):
            message.tag = ask["tag"]
        for key in ask.get("keys", ()):
            message.keys = key
        for name, value in ask.get("properties", {}).items():
            message.add_property(name, value)
        if ask.get("message_group"):
            message.message_group = ask["message_group"]
        if ask.get("delay_s"):
            message.delivery_timestamp = int(time.time()) + ask["delay_s"]
        if ask.get("lite_topic"):
            message.lite_topic = ask["lite_topic"]
        if ask.get("priority"):
            message.priority = ask["priority"]
        transaction = self.transactions.get(ask.get("transaction"))
        receipt = self.clients[ask["name"]].send(message, transaction)
        return {"message_id": receipt.message_id, "recall_handle": receipt.recall_handle, "offset": receipt.offset}

    def begin(self, ask):
        self.transactions[ask["transaction"]] = self.clients[ask["name"]].begin_transaction()

    def commit(self, ask):
        self.transactions.pop(ask["transaction"]).commit()

    def rollback(self, ask):
        self.transactions.pop(ask["transaction"]).rollback()

    def recall(self, ask):
        return {"receipt": str(self.clients[ask["name"]].recall_message(ask["topic"], ask["recall_handle"]))}

    def push(self, ask):
        listener = Listener(ask["name"], ask.get("failures", 0), ask.get("busy_s", 0))
        wanted = {topic: expression(one) for topic, one in ask["subscriptions"].items()}
        client = PushConsumer(self.configuration(ask), ask["group"], listener, wanted, **TLS)
        client.startup()
        self.clients[ask["name"]] = client

    def simple(self, ask):
        wanted = {topic: expression(one) for topic, one in ask["subscriptions"].items()}
        client = SimpleConsumer(self.configuration(ask), ask["group"], wanted, ask.get("await_s", 5), **TLS)
        client.startup()
        self.clients[ask["name"]] = client

    def lite_push(self, ask):
        listener = Listener(ask["name"], ask.get("failures", 0), ask.get("busy_s", 0))
        client = LitePushConsumer(self.configuration(ask), ask["group"], ask["topic"], listener)
        client.startup()
        self.clients[ask["name"]] = client

    def lite_simple(self, ask):
        client = LiteSimpleConsumer(ask["topic"], self.configuration(ask), ask["group"], ask.get("await_s", 5))
        client.startup()
        self.clients[ask["name"]] = client

    def subscribe_lite(self, ask):
        for patience in range(300, -1, -1):
            try:
                self.clients[ask["name"]].subscribe_lite(ask["lite_topic"])
                return
            except LiteSubscriptionQuotaExceededException:
                if not patience:  # the quota is 0 until the settings have arrived
                    raise
                threading.Event().wait(0.1)

    def unsubscribe_lite(self, ask):
        self.clients[ask["name"]].unsubscribe_lite(ask["lite_topic"])

    def receive(self, ask):
        messages = self.clients[ask["name"]].receive(ask["count"], ask["invisible_s"]) or []
        for message in messages:
            self.received[message.message_id] = message
        return {"messages": [plain(message) for message in messages]}

    def ack(self, ask):
        self.clients[ask["name"]].ack(self.received[ask["message_id"]])

    def invisible(self, ask):
        self.clients[ask["name"]].change_invisible_duration(self.received[ask["message_id"]], ask["seconds"])

    def shutdown(self, ask):
        self.clients.pop(ask["name"]).shutdown()

    def do(self, ask):
        try:
            say({"id": ask["id"], **(getattr(self, ask["do"])(ask) or {})})
        except Exception as error:
            say({"id": ask["id"], "error": f"{type(error).__name__}: {error}"})


def main():
    driver = Driver(sys.argv[1])
    with ThreadPoolExecutor(32) as pool:
        for line in sys.stdin:
            pool.submit(driver.do, json.loads(line))
    for client in list(driver.clients.values()):
        client.shutdown()


main()
