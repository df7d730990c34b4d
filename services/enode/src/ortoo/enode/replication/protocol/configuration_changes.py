"""Membership changes: one at a time, each a frame of the log. A new replica is a learner first, then a voter."""

from dataclasses import replace

from ortoo.enode.replication.protocol.events import AddLearner, AppendConfiguration, RejectRequest, RemoveReplica
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Leader


def on_add_learner(replica: Replica, event: AddLearner) -> None:
    """Add a learner, a replica that gets the log and has no vote. The learner becomes a voter automatically."""
    configuration = replica.rules.configuration_of(replica.log)
    if event.replica in configuration.replicas:
        replica.add_actions(RejectRequest(f"replica {event.replica.number} with this disk is in the set already"))
    elif any(event.replica.number == one.number for one in configuration.learners):
        replica.add_actions(
            RejectRequest(f"replica {event.replica.number} joins already with another disk: remove that first")
        )
    else:
        _propose_configuration(replica, Configuration(configuration.voters, (*configuration.learners, event.replica)))


def on_remove_replica(replica: Replica, event: RemoveReplica, now_s: float) -> None:
    """Remove a replica. The request is refused if the answering voters would be no majority of the new configuration.

    After such a removal no replica could lead. The removed replica could not help: it no longer counts as a voter.
    """
    configuration = replica.rules.configuration_of(replica.log)
    after = Configuration(
        _without(configuration.voters, event.replica), _without(configuration.learners, event.replica)
    )
    answering = replica.responding_voters(after, now_s) if isinstance(replica.role, Leader) else after.voters
    if event.replica not in configuration.replicas:
        replica.add_actions(RejectRequest(f"replica {event.replica.number} with that disk is not in the set"))
    elif event.replica == replica.identity.replica:
        replica.add_actions(
            RejectRequest(f"replica {event.replica.number} leads: transfer leadership to another first")
        )
    elif 1 + len(answering) < after.majority:
        away = ", ".join(str(one.number) for one in after.voters if one not in (replica.identity.replica, *answering))
        replica.add_actions(
            RejectRequest(f"without it too few replicas answer: start replica {away}, or add one first")
        )
    else:
        _propose_configuration(replica, after)


def _without(replicas: tuple[ReplicaId, ...], removed: ReplicaId) -> tuple[ReplicaId, ...]:
    return tuple(one for one in replicas if one != removed)


def _propose_configuration(replica: Replica, configuration: Configuration) -> None:
    if not isinstance(replica.role, Leader):
        reason = "this replica does not lead"
    elif replica.role.successor is not None:
        reason = "this leader is transferring leadership: ask the next one"
    else:
        reason = replica.rules.configuration_change_refusal(replica.role, replica.log)
    replica.add_actions(RejectRequest(reason) if reason else AppendConfiguration(configuration))


def promote_learners(replica: Replica) -> None:
    """Make a learner a voter when it has the committed log and a change is allowed.

    The learner must have answered a heartbeat, because a voter without an answer counts as silent.
    """
    role, rules, log = replica.leader_role, replica.rules, replica.log
    configuration = rules.configuration_of(log)
    if not configuration.learners or role.successor is not None or rules.configuration_change_refusal(role, log):
        return
    for learner in configuration.learners:
        stream = role.stream_to(learner)
        is_heard = role.last_response_of(learner).round > 0
        if is_heard and stream is not None and stream.is_matched and rules.is_caught_up(log, stream):
            after = Configuration((*configuration.voters, learner), _without(configuration.learners, learner))
            replica.add_actions(AppendConfiguration(after))
            return


def drop_removed_replicas(replica: Replica) -> None:
    """Drop the leader's streams to replicas that were removed."""
    role, everybody = replica.leader_role, replica.rules.configuration_of(replica.log).replicas
    streams = tuple(one for one in role.streams if one.follower.replica in everybody)
    heard = tuple(one for one in role.responses if one.replica in everybody)
    replica.role = replace(role, streams=streams, responses=heard)
