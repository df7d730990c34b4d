"""The jobs. Each is a function of its settings and produces a lake, a topic or a report."""
