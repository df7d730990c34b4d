"""Commands for messages that become visible later: delayed, scheduled, or in a transaction."""
