"""What stands in for the operating system: virtual time, processes that can be killed, chance, and the trace.

Enters: a seed. Leaves: `VirtualLoop`, `SimulatedProcess`, `MachineClock`, `Chances`, `Trace`. It knows nothing of
brokers; only `ortoo.testing.simulation` imports it.
"""
