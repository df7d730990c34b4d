"""Record batches as Arrow record batches: bytes in, arrays out that lie over them; no loop over rows. For readers."""
