"""The parts of a snode, made and joined."""
