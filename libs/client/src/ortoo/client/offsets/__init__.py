"""Where a consumer keeps how far it is: in come processed offsets, out go those to begin at.

For `push`, `pull` and `sessions`. It imports `core` alone.
"""
