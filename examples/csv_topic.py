"""A script for the shell: sends the rows of a CSV file to a topic, or writes a topic as CSV.

    pip install ortoo
    python csv_topic.py load people people.csv --key email
    python csv_topic.py dump people > copy.csv

Each row is one message, a JSON object. The script uses the blocking client, so it has no event loop. `dump` reads every
message that the topic has now. It belongs to no consumer group, so it changes no offset.
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterator

from ortoo.client import Message
from ortoo.client.blocking import connect


def rows(path: str, key: str) -> Iterator[Message]:
    """The rows of a file as messages; the column `key` is the key by which a message is found."""
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield Message(json.dumps(row).encode(), keys=(row[key],) if key else ())


def load(topic: str, path: str, key: str) -> None:
    """Send all rows; each is on disk when this returns."""
    with connect() as mq:
        mq.admin.ensure_topic(topic)
        with mq.producer(topic) as producer:
            receipts = producer.send_many(rows(path, key))
    print(len(receipts), "rows stored", file=sys.stderr)


def dump(topic: str) -> None:
    """Write all messages of the topic as CSV, with the columns of the first message."""
    with connect() as mq:
        writer = None
        for stored in mq.admin.tail(topic, from_beginning=True, follow=False):
            row = json.loads(stored.message.body)
            if writer is None:
                writer = csv.DictWriter(sys.stdout, fieldnames=list(row))
                writer.writeheader()
            writer.writerow(row)


def main() -> None:
    """Parse the arguments and run one command."""
    parser = argparse.ArgumentParser(description="Sends a CSV file to a topic, or writes a topic as CSV.")
    commands = parser.add_subparsers(dest="command", required=True)
    loading = commands.add_parser("load", help="send the rows of a file")
    loading.add_argument("topic")
    loading.add_argument("path")
    loading.add_argument("--key", default="", help="the column that becomes the key of a message")
    commands.add_parser("dump", help="write a topic as CSV").add_argument("topic")
    options = parser.parse_args()
    if options.command == "load":
        load(options.topic, options.path, options.key)
    else:
        dump(options.topic)


if __name__ == "__main__":
    main()
