"""Filters of readers: tags and SQL conditions, applied to columns before bodies are read.

The inputs are expressions and stored batches, the results are rows and smaller batches. All reading code imports it.
"""
