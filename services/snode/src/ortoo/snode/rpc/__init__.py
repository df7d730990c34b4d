"""What the snode offers on the wire: decode, call, encode."""
