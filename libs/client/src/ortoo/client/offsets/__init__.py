"""Where a consumer keeps how far it is, and where it begins."""
