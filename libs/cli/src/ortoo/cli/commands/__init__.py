"""The commands, one file for each kind. Each takes arguments and a client, and returns its output; `app` lists them."""
