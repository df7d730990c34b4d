"""The worker of the shop: `python manage.py ship_orders`. Start any number of workers."""

from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections

from ortoo.client import PoppedMessage
from shop.broker import TOPIC, client
from shop.models import Order


class Command(BaseCommand):
    """Ships orders until SIGTERM or Ctrl-C."""

    help = "Ships orders until SIGTERM or Ctrl-C."

    def handle(self, *_: Any, **__: Any) -> None:
        """Run the handler in threads; a message is acknowledged when the handler has returned."""
        with client().pop_consumer("shipping", TOPIC) as consumer:
            consumer.run(self.ship, concurrency=4)

    def ship(self, message: PoppedMessage) -> None:
        """Ship an order. A second delivery of the message changes nothing."""
        close_old_connections()
        number = message.body.decode()
        if Order.objects.filter(number=number, is_shipped=False).update(is_shipped=True):
            self.stdout.write(f"shipped {number}")
