"""`ortoo dev`: runs a whole cluster in this process. Only the command `dev` imports it."""
