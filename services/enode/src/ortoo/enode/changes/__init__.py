"""State changes and their bytes. Pure.

Changes are encoded to bytes, and bytes are decoded to changes. `kinds` has the table of kinds, and `codec` generates
encoders from declarations. The other modules declare changes. See docs/formats/log.md. Any package above may import it.
"""
