"""One member at work: events in from disk, network, clock and name servers; what `members` decides, done.

`rpc` carries words to the others and reports to name servers, `app` opens what leads; both may import it.
"""
