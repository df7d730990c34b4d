"""The roles of callers at inner ports, by certificates and tokens, and the methods that each role may call.

The layer in `guard` checks the calls of name servers and enodes. `callers` has a row for each method.
"""
