"""A workflow with retries and delays: charge an order, ship it, and ask for a review later.

    pip install ortoo
    python order_workflow.py

Each step is a handler, and each arrow between two steps is a topic:

    orders --charge--> shipments --ship--> reviews (after a delay) --ask_for_review

* The bank is not reachable at first, so `charge` raises. The server delivers the order again after each of `RETRIES`.
* A declined card is not retried. The order becomes a dead letter at once, and `ortoo dlq list workflow` shows it.
* The delay before the review is a property of the message. The server keeps it across restarts of all processes.
"""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

from ortoo.client import App, Message, PoppedMessage, connect

RETRIES = (timedelta(seconds=0.2), timedelta(seconds=1), timedelta(minutes=10))
REVIEW_DELAY_MS = 1000


@dataclass
class Order:
    """An order of a customer."""

    number: str
    cents: int


app = App("workflow")
orders = app.producer("orders", Order)
shipments = app.producer("shipments", Order)
reviews = app.producer("reviews", Order)
finished = asyncio.Event()


@app.consumer("orders", retries=RETRIES)
async def charge(order: Order, message: PoppedMessage) -> None:
    """Charge the card of the customer."""
    if order.cents > 100_000:
        await message.park("the card was declined")
    elif message.attempt < 3:
        raise ConnectionError("the bank is not reachable")
    else:
        print("charged", order.number, "at attempt", message.attempt)
        await shipments.send(order)


@app.consumer("shipments")
async def ship(order: Order) -> None:
    """Ship a paid order."""
    print("shipped", order.number)
    due_ms = int(time.time() * 1000) + REVIEW_DELAY_MS
    await reviews.send(order, Message(b"", deliver_at_ms=due_ms))


@app.consumer("reviews")
async def ask_for_review(order: Order) -> None:
    """Ask the customer for a review."""
    print("asked for a review of", order.number)
    finished.set()


async def main() -> None:
    """Run the workflow until an order went through all steps."""
    async with connect() as mq:
        for topic in ("orders", "shipments", "reviews"):
            await mq.admin.ensure_topic(topic)
        async with app.running(mq, finish_timeout_s=5):
            await orders.send(Order("o-1", 4200))
            await orders.send(Order("o-2", 999_999))
            await finished.wait()
        async for letter in mq.admin.list_dead_letters("workflow"):
            print("dead letter:", letter.message.body.decode(), letter.error)


if __name__ == "__main__":
    asyncio.run(main())
