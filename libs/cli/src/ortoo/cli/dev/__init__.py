"""`ortoo dev`: a whole cluster in one process."""
