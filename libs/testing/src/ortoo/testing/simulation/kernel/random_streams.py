"""One seed, many independent streams of randomness: draws of one part never change the draws of another."""

import hashlib

from ortoo.common.process.randomness import Randomness


class RandomStreams:
    """Streams of randomness by name, all from one seed."""

    def __init__(self, seed: int) -> None:
        """Derive all streams from `seed`."""
        self.seed = seed

    def stream(self, name: str) -> Randomness:
        """The stream with this name, from its beginning."""
        # The hash of a string differs between interpreters; this digest does not.
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return Randomness(int.from_bytes(digest[:8], "little"))


def happens(choice: Randomness, probability: float) -> bool:
    """Whether an event of this probability happens now."""
    return choice.uniform(0.0, 1.0) < probability
