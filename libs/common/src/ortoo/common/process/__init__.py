"""How a process lives: settings, start and stop, logs, and the owners of time, chance and tasks."""
