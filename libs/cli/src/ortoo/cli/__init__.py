"""The `ortoo` command: what people and operators do with a cluster."""
