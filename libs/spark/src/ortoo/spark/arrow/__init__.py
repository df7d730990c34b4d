"""Record batches as Arrow record batches: zero-copy arrays over the received bytes, without loops over rows."""
