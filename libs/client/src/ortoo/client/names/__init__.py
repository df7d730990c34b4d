"""The public names of `ortoo.client`, and the modules that have them."""
