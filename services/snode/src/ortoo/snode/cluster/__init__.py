"""What exists: the directory as plain values, kept equal to the name servers'. It asks name servers and nobody else."""
