"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    """An order, and whether it has been shipped."""

    number = models.CharField(max_length=64, primary_key=True)
    cents = models.PositiveIntegerField()
    is_shipped = models.BooleanField(default=False)
