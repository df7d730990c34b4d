"""Commands of the shop, one module each."""
