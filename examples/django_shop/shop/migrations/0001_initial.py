"""The table of the orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates the table."""

    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("number", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("cents", models.PositiveIntegerField()),
                ("is_shipped", models.BooleanField(default=False)),
            ],
        ),
    ]
