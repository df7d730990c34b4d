"""Metrics, spans and findings of a process, as Prometheus text and OTLP. For the apps and their metrics."""
