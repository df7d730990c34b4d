"""The examination of a cluster: facts are collected, and findings with remedies are derived from them."""
