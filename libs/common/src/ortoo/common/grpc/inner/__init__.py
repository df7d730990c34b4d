"""The roles of callers at inner ports: certificates, tokens and a table in; calls or refusals out.

The layer in `guard` stands around the calls of name servers and enodes. `callers` has a row for each method.
"""
