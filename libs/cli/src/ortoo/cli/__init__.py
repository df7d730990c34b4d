"""The `ortoo` command, for users and operators of a cluster."""
