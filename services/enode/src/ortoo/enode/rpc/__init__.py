"""What the enode offers on the wire: decode, call the store, encode."""
