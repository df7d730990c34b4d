"""The jobs of `ortoo-pipeline`: archive, compact, replay, trace, lag. Each is a function of its settings."""
