"""What the name server offers on the wire: decode, call the directory, encode."""
