"""Long random runs, each checking one promise against the simplest model of it."""
