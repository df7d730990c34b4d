"""The elements of the protocol: callers, codes, names, filters and messages.

The package converts between the protocol's messages and plain values. Every other package of the gateway may import it;
it imports none of them.
"""
