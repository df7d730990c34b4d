"""Who consumes: members of groups, shared among snodes, and which queues each gets."""
