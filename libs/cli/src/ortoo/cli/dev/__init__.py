"""`ortoo dev`: a folder and an address in, a whole cluster in this process out. The command `dev` alone imports it."""
