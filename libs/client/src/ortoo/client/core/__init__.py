"""What every part of the client stands on: the connection, conversations, queues, filters, what was received."""
