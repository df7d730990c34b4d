"""The protocol's words: callers, codes, names, filters and messages.

In come the protocol's messages, out go plain values, and back. Every other room of the gateway may import this one;
it imports none of them.
"""
