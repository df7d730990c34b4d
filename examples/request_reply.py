"""A request with a reply: a service that quotes prices, and a client that waits for the quote.

    pip install ortoo
    ortoo topic create prices
    python request_reply.py serve &
    python request_reply.py ask apples 3

The request is a stored message. It survives a crash of the service, and several services share the work. The reply is
the value that the handler returns. It is not stored.
"""

import asyncio
import sys
from dataclasses import dataclass

from ortoo.client import App, RequestTimeout, connect

TOPIC = "prices"
CENTS = {"apples": 30, "pears": 45}


@dataclass
class Question:
    """An amount of one product."""

    product: str
    count: int


@dataclass
class Quote:
    """The price; None if the shop does not have the product."""

    cents: int | None


service = App("prices")
customer = App("customer")
prices = customer.producer(TOPIC, Question)


@service.consumer(TOPIC)
async def quote(question: Question) -> Quote:
    """Compute the price of a question; the result is the reply."""
    each = CENTS.get(question.product)
    return Quote(None if each is None else each * question.count)


async def ask(product: str, count: int) -> None:
    """Print the price, or the reason why there is no answer."""
    async with connect() as mq, customer.running(mq):
        try:
            answer = await prices.request(Question(product, count), Quote, timeout_s=5)
        except RequestTimeout as error:
            sys.exit(f"no answer: {error}")
    print("not for sale" if answer.cents is None else f"{answer.cents} cents")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        service.run()
    else:
        asyncio.run(ask(sys.argv[2], int(sys.argv[3])))
