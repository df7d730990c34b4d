"""Ortoo's processes, forked from a process that has imported everything, and their runner with asyncio's interface."""
