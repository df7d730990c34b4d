"""The log: writes frames into segments, and reads them.

It takes batches and state changes, and returns positions and verified frames. Every package above may import it. It
imports only `disk` and `changes`.
"""
