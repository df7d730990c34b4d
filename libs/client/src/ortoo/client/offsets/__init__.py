"""Where a consumer keeps how far it is, and what it passed over: in come processed offsets, out go those to begin at.

For `push`, `pull` and `sessions`. It imports `core` alone.
"""
