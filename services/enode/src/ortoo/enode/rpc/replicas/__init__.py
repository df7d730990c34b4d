"""The messages of replicas to each other, to name servers and to operators."""
