"""Tools for a store that no process has open: look at it, mend it."""
