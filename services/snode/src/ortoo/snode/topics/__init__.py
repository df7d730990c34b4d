"""Topics and groups as they come to be and are set up: made on demand, awaited, configured."""
