"""Which carriers depart late: a report on the lake, made by Spark from the JSON in the messages' bodies."""

from pathlib import Path
from typing import Any

from ortoo.spark.pipeline.running.page import Table, new_figure, write_page

_SQL = """
select flight.carrier, count(*) as flights, count(flight.dep_delay) as departed,
       avg(flight.dep_delay) as mean_delay, percentile_approx(flight.dep_delay, 0.5) as median_delay,
       100.0 * count_if(flight.dep_delay > 15) / count(flight.dep_delay) as late_percent
from (select from_json(cast(body as string), 'carrier string, dep_delay double') as flight from {messages})
group by flight.carrier order by mean_delay desc
"""
_NAMES = ("carrier", "flights", "departed", "mean delay, min", "median, min", "over 15 min late, %")


def delays(spark: Any, messages: Any, folder: Path) -> Table:
    """Write delays.html and delays.png; returns the table."""
    rows = [tuple(row) for row in spark.sql(_SQL, messages=messages).collect()]
    rows = [(*row[:3], *(None if cell is None else float(cell) for cell in row[3:])) for row in rows]
    figure = new_figure()
    axes = figure.subplots()
    axes.bar([row[0] for row in rows], [row[3] or 0.0 for row in rows], color="#336699")
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title("Departures from New York, 2013")
    table = Table("By carrier", _NAMES, rows)
    note = f"{sum(row[1] for row in rows):,} flights; a flight without a delay was cancelled."
    write_page(folder, "delays", "Departure delays by carrier", note, [table], figure)
    return table
