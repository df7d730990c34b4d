"""What reading and writing share: columns, options, offsets, and a worker's way to the cluster."""
