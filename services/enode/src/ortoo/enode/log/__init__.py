"""The log: frames in segments, how they get there, how they are found again.

In: batches and state changes. Out: positions, and frames whose bytes were checked. Every room above may import it; it
knows `disk` and `changes` alone.
"""
