"""The simulated operating system: virtual time, processes that can be killed, randomness, and the trace.

Enters: a seed. Leaves: `VirtualLoop`, `SimulatedProcess`, `MachineClock`, `Chances`, `Trace`. It does not depend on
brokers; only `ortoo.testing.simulation` imports it.
"""
