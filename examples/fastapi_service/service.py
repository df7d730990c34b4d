"""A web service that stores each order in a topic before it answers.

    uvicorn service:app

    curl localhost:8000/orders --json '{"number": "o-1", "cents": 4200}'

The answer 202 means that the message is on disk. If the cluster cannot be reached, the answer is 503, and the customer
may retry.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from orders import TOPIC, Order

from ortoo.client import App, Message, Unavailable, connect

program = App("service")
orders = program.producer(TOPIC, Order)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Connect when the worker process starts, and close when it stops."""
    async with connect() as mq, program.running(mq):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    """Store an order; the worker processes it."""
    receipt = await orders.send(order, Message(b"", keys=(order.number,)))
    return {"message_id": receipt.message_id}


@app.exception_handler(Unavailable)
async def answer_unavailable(_: Request, error: Exception) -> JSONResponse:
    """Tell the customer to retry when no answer of the cluster came in time."""
    return JSONResponse({"detail": str(error)}, status_code=503)
