"""One flush after another: what goes to the disk together, who writes it, and what is held until it is committed."""
