"""How a process lives: settings, start and stop, logs, the owners of time, chance and tasks. Everybody imports it."""
