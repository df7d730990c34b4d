"""The push consumer: credit out, whole batches in, acknowledgements out."""
