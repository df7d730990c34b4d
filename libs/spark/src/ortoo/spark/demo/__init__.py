"""`make demo-spark`: the flights of 2013 through the broker into a lake, reports about them, and some of them back."""
