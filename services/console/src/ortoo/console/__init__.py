"""The web console: topics, groups, messages and problems of a cluster in a browser."""
