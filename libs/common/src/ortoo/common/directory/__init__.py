"""Parts of topics and groups that name servers store and snodes apply, as plain values: one definition for both."""
