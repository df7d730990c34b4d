"""What operators do, as calls; what they are told, as plain values."""
