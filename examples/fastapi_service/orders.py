"""The message that the web service and the worker share."""

from pydantic import BaseModel, Field

TOPIC = "orders"


class Order(BaseModel):
    """An order of a customer, in JSON."""

    number: str = Field(min_length=1, max_length=64)
    cents: int = Field(gt=0)
