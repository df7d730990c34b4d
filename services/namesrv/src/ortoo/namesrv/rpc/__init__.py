"""The services of the name server: decode messages, call the directory, encode the answers."""
