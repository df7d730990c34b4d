"""What the enode tells about itself: metrics and spans."""
