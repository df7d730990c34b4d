"""The elements of the protocol: callers, codes, names, filters and messages.

It converts between the protocol's messages and plain values. Every other package of the gateway may import this one; it
imports none of them.
"""
