"""The pull consumer: a member of a group with queues of its own; offsets go in, messages and commits come out."""
