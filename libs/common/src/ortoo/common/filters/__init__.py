"""Which messages a reader gets: tags and SQL conditions, applied to columns before bodies are touched.

In come expressions and stored batches, out go rows and narrower batches. Whatever reads imports it.
"""
