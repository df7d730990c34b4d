"""What a process tells about itself: counters and spans in, Prometheus text and OTLP out. For apps and metrics."""
