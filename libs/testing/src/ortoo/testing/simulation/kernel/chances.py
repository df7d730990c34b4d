"""One seed, many independent streams of chance: what one part draws never changes what another one draws."""

import hashlib

from ortoo.common.process.randomness import Randomness


class Chances:
    """Streams of chance by name, all from one seed."""

    def __init__(self, seed: int) -> None:
        """Begin with `seed`."""
        self.seed = seed

    def of(self, name: str) -> Randomness:
        """The stream with this name, from its beginning."""
        # The hash of a text differs between interpreters; this one does not.
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return Randomness(int.from_bytes(digest[:8], "little"))


def happens(choice: Randomness, probability: float) -> bool:
    """Whether something of this probability happens now."""
    return choice.uniform(0.0, 1.0) < probability
