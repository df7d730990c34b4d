"""State changes and their bytes. Pure.

In: a change, or the bytes of several. Out: its bytes, or the changes. `kinds` has the table of kinds, and `codec`
generates encoders from declarations. The other modules declare changes. See docs/formats/log.md. Any package above may
import it.
"""
