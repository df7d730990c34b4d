"""Reading outside groups: ranges, tails and dead letters, without locks or offsets."""
