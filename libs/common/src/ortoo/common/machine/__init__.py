"""The process's use of the operating system: memory, cores, standard files."""
