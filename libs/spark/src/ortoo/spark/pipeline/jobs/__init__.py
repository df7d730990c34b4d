"""The jobs: each is a function of its settings; a lake, a topic or a report comes out."""
