"""What a process asks of the operating system for itself: memory, cores, standard files."""
