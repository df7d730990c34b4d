"""Tools for a store beside its server: look at it, mend it, back it up, make one of a backup.

In: a folder. Out: lines about what is in it, steps that mend it, a copy. Only the command line runs them.
"""
