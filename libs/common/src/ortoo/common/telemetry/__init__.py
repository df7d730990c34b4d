"""Metrics, spans and findings of a process, as Prometheus text and OTLP. For all services."""
