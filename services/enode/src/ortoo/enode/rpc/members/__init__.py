"""What members say to each other, to name servers and to operators."""
