"""`make demo-spark`: the flights of 2013 through the broker into a lake, reports, and a replay of some flights."""
