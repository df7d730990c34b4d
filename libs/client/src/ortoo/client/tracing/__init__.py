"""Spans and metrics of messages through OpenTelemetry, which the client imports only if the application uses it.

Nothing here knows a connection or a protocol.
"""
