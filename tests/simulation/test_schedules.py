"""Defects that seeds found, each as the schedule that brings it about: mended, and to stay so."""

from ortoo.client import Client, NotFound, PopSettings
from tests.simulation.stage import Stage, play


def test_a_message_whose_parking_is_asked_for_twice_has_one_dead_letter() -> None:
    """A full disk holds the dead letter up, the caller goes away in between, and asks again at another time (G9)."""

    async def script(stage: Stage) -> None:
        disk = stage.cluster.enodes[0].disk
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            settings = PopSettings(invisible_ms=60_000, attempts_max=1, messages_max=1)
            async with client.producer("t") as producer, client.pop_consumer("g", "t", "*", settings) as consumer:
                await producer.send(b"first")  # its parking makes the dead-letter topic
                [first] = await consumer.pop()
                await first.give_back(0, error="it fails")
                while not await letters(client):
                    assert await consumer.pop(wait_ms=1_000) == []
                await producer.send(b"second")
                [second] = await consumer.pop()
                disk.current.full_after(0)
                stage.later(4.5, disk.current.heal)
                await second.give_back(0, error="it fails too")  # the snode gives up after 3 s, the client does not
                await stage.clock.sleep(10)
                assert await consumer.pop(wait_ms=5_000) == []
            assert await letters(client) == [b"first", b"second"]

    async def letters(client: Client) -> list[bytes]:
        try:
            return [letter.message.body async for letter in client.admin.dead_letters("g")]
        except NotFound:
            return []

    play(script)
