"""What a process asks of the operating system for itself: how memory is kept, which cores it runs on."""
