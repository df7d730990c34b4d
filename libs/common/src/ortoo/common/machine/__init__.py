"""The process's use of the operating system: memory, descriptors, standard files."""
