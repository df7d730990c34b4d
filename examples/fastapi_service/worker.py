"""The worker of the web service: ships each order. Start any number of workers: `python worker.py`.

An order that cannot be shipped is retried after one second and after a minute. Then it is a dead letter.
`ortoo dlq list shipping` shows it with its last error.
"""

import logging
from datetime import timedelta

from orders import TOPIC, Order

from ortoo.client import App

app = App("shipping")
log = logging.getLogger("worker")


@app.consumer(TOPIC, retries=(timedelta(seconds=1), timedelta(minutes=1)), concurrency=32)
async def ship(order: Order) -> None:
    """Ship an order."""
    log.info("shipped %s for %.2f", order.number, order.cents / 100)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    app.run()
