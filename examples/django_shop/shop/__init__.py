"""A shop whose orders are shipped by a worker."""
