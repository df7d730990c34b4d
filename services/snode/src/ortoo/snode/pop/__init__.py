"""Messages handed out one by one: pops over all enodes, what becomes of the messages, handles, dead letters."""
