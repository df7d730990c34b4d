"""What the name server offers on the wire: messages in, calls of the directory, messages out. For the app alone."""
