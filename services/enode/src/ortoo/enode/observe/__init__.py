"""Observability of the enode: metrics, spans and findings.

In: the store, pops, and the append router. Out: metrics, findings, and an append router that records spans.
Only `app` imports it.
"""
