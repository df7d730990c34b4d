"""The parts of connections and streams that servers and clients of the transport `h2` share.

They take frames, messages and limits of the package above, and give both ends their base.
"""
