"""Observability of the enode: metrics, spans and findings.

In: the store, pops, an intake. Out: metrics, findings, and an intake that records spans.
Only `app` imports it.
"""
