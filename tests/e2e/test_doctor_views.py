"""The doctor asks every snode: its answer does not depend on the snode that answers."""

import json
from pathlib import Path

from ortoo.verification.servers import command
from ortoo.verification.servers.processes import process_cluster
from ortoo.verification.servers.valkey import valkey
from tests.findings import OF_THE_MACHINE


async def test_a_snode_that_is_cut_off_from_one_enode_is_named_by_every_snode(tmp_path: Path) -> None:
    """The finding names the snode that does not reach the enode, and the one that does."""
    token = tmp_path / "token"
    token.write_text("a-token-of-this-cluster")
    async with (
        valkey(tmp_path / "valkey") as redis,
        process_cluster(tmp_path, enodes=2, snodes=2, environ={"snode": {"REDIS_URL": redis.url}}) as cluster,
    ):
        for role in (cluster.enodes[1], cluster.snodes[0]):
            await role.kill()
            role.environ["CLUSTER_TOKEN_FILE"] = token
            await role.start()
        await cluster.wait_until_alive()
        for snode, examined in zip(cluster.snodes, (True, False), strict=True):
            outcome = await command.run(("ortoo", "doctor", "--json", "--patience", "10"), snode.address)
            everything = [json.loads(line) for line in outcome.stdout.splitlines()]
            found = [one for one in everything if one["name"] not in OF_THE_MACHINE]
            assert [one["name"] for one in found] == ["enode unresponsive"] + ["not examined"] * (not examined)
            assert "enode enode-1" in found[0]["observed"]
            assert "does not answer snode snode-1" in found[0]["observed"]
            assert "It answers snode-0" in found[0]["observed"]
            assert "cluster_token_file" in found[0]["remedy"]
            assert examined or "enode enode-1 (no answer)" in found[1]["observed"]
