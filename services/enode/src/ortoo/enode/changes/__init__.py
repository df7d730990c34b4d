"""State changes and their bytes. Pure.

In: a change, or the bytes of several. Out: its bytes, or the changes. `all` has the table of kinds, `codec` makes
bytes of declarations, the others declare; docs/formats/log.md shows the same. Every room above may import it.
"""
