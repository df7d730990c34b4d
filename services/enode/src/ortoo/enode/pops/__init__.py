"""Messages handed out one by one: leases, acknowledgements, returns, parking."""
