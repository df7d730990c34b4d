"""What the enode says to name servers and hears from them."""
