"""Long random runs of one promise each, against the simplest model of it."""
