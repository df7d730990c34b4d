"""How processes find one another: names and addresses, name servers, and the lease that says that one is there."""
