"""The services of the name server: messages in, calls of the directory, messages out. Used by the app only."""
