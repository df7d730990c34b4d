"""G5: within a message group, message n+1 is not delivered before n is acknowledged or parked."""

from tests.contract.pop_store import PopStore, play, texts


def test_the_next_of_a_message_group_waits_for_the_one_before() -> None:
    """Other message groups continue, also after a restart."""

    async def scenario(it: PopStore) -> None:
        await it.send("a1", "a2", group="a")
        await it.send("b1", "b2", group="b")
        await it.send("free")
        first = await it.pop(in_order=True)
        assert texts(first) == ["a1", "b1", "free"]
        assert texts(await it.pop(in_order=True)) == []
        await it.restart()
        assert texts(await it.pop(in_order=True)) == []
        await it.ack(first)
        second = await it.pop(in_order=True)
        assert texts(second) == ["a2", "b2"]

    play(scenario)


def test_one_who_waits_gets_the_next_of_a_message_group_as_soon_as_it_is_free() -> None:
    """An acknowledgement wakes the waiting consumer."""

    async def scenario(it: PopStore) -> None:
        await it.send("a1", "a2", group="a")
        first = await it.pop(in_order=True)
        waiting = it.popping(in_order=True)
        await it.one.clock.sleep(1)
        await it.ack(first)
        assert texts(await waiting) == ["a2"]
        assert it.one.clock.monotonic_s() < 1.1

    play(scenario)


def test_a_poisoned_message_gives_way_when_it_is_parked() -> None:
    """Its message group continues with the next message; other groups are not affected."""

    async def scenario(it: PopStore) -> None:
        await it.send("poison", "a2", group="a")
        await it.send("b1", group="b")
        seen = []
        for _ in range(8):
            popped = await it.pop(1, in_order=True, wait_ms=1)
            seen += texts(popped)
            if texts(popped) == ["poison"]:
                await it.nack(popped)
            else:
                await it.ack(popped)
        assert seen == ["poison", "poison", "poison", "a2", "b1"]
        assert [one.body for one in await it.dead_letters()] == [b"poison"]

    play(scenario)
