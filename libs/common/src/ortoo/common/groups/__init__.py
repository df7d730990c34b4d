"""What everybody computes alike about groups and queues: allocation, back-off, pops, handles. Pure, plain values."""
