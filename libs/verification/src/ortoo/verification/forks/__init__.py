"""Processes of ours, forked from one that has imported everything; with what runs them as asyncio's own are run."""
