"""What reading and writing share: options in, plans' plain values out, and a worker's way to the cluster."""
