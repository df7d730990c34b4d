"""The pages of the shop."""

import json
from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from ortoo.client import Message
from shop.broker import orders
from shop.models import Order


@csrf_exempt
@require_POST
@transaction.atomic
def place(request: HttpRequest) -> JsonResponse:
    """Store an order, and send its number when the transaction is committed.

    A crash between the commit and the send loses the message. The example with an outbox closes this gap.
    """
    fields: dict[str, Any] = json.loads(request.body)
    order = Order.objects.create(number=fields["number"], cents=fields["cents"])
    transaction.on_commit(lambda: orders().send(Message(order.number.encode(), keys=(order.number,))))
    return JsonResponse({"number": order.number}, status=202)


@require_GET
def show(_: HttpRequest, number: str) -> JsonResponse:
    """Show the state of an order."""
    order = get_object_or_404(Order, number=number)
    return JsonResponse({"number": order.number, "is_shipped": order.is_shipped})
