"""The jobs of `ortoo-pipeline`: archive, compact, replay, trace, lag, accounts. Each is a function of its settings."""
