"""The commands, a file each kind: arguments in, calls of the client, text out."""
