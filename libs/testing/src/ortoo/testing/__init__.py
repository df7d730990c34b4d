"""A broker in the tests of applications: the pytest plugin, and the simulated cluster that it runs."""
