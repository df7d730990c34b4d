"""Tools for a store that no process has open: look at it, mend it.

In: a folder. Out: lines about what is in it, and steps that mend it. Only the command line runs them.
"""
