"""The basis of every process: settings, start and stop, clocks, randomness, tasks, memory. All packages import it."""
