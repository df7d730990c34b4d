"""The log as others have it: their frames taken over, and the frames with which members speak to each other."""
