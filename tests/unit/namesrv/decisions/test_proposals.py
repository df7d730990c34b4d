"""The choice of the replica that a name server proposes as leader, and when it proposes none."""

import dataclasses

import pytest

from ortoo.common.errors import Conflict, NotFound
from ortoo.namesrv.decisions.proposals import PROPOSAL_TIMEOUT_S, ProposalState, next_proposal, operator_choice
from ortoo.namesrv.decisions.replicas import LogTail, Proposal, ReplicaId, ReplicaReport, ReplicaSets
from tests.unit.namesrv.decisions.replicas_of_one import ids, report, said

FIRST, SECOND, THIRD = ids(1, 2, 3)


def silent(number: int, **more: object) -> ReplicaReport:
    """A replica that receives no heartbeats of a leader."""
    return report(number, is_leader_silent=True, **more)  # type: ignore[arg-type]


def led_by_first(now_s: float = 0.0) -> ReplicaSets:
    """Three replicas, of which the first leads epoch 1."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, is_leading=True), report(2), report(3), now_s=now_s, members=members)
    return members


STANDING = ProposalState(Proposal(1, FIRST), 1, since_s=-100.0)


def test_nobody_is_proposed_while_a_leader_is_heard() -> None:
    """None in normal operation, and none if only one replica misses the leader."""
    members = led_by_first()
    assert next_proposal(members.sets["e"], STANDING) is None
    assert next_proposal(said(silent(3), members=members), STANDING) is None


def test_the_longest_log_is_proposed_when_a_majority_hears_nobody() -> None:
    """The later epoch counts before length, length before number. A frozen former leader is not proposed."""
    assert next_proposal(said(silent(2), silent(3, end=101), members=led_by_first()), STANDING) == Proposal(2, THIRD)
    later = said(silent(2, tail_epoch=2, end=1), silent(3, end=101), members=led_by_first())
    assert next_proposal(later, STANDING) == Proposal(3, SECOND)
    assert next_proposal(said(silent(2), silent(3), members=led_by_first()), STANDING) == Proposal(2, SECOND)
    members = led_by_first()
    members.expire(3.0)
    assert next_proposal(said(silent(2), silent(3), now_s=3.0, members=members), STANDING) == Proposal(2, SECOND)


def test_a_leader_that_lost_its_majority_has_its_next_turn_after_all_others() -> None:
    """It has the longest log and may reach the name servers but no replica. Its term counts as a turn.

    So it is proposed after all others have failed, and again after their second turns.
    """
    members, standing, order = led_by_first(), STANDING, list[int]()
    said(silent(1, end=200), silent(2), silent(3), members=members)
    for _ in range(6):
        proposal = next_proposal(members.sets["e"], standing)
        assert proposal is not None
        order.append(proposal.leader.number)
        standing = dataclasses.replace(standing.with_stored(proposal, 0.0), since_s=-100.0)
    assert order == [2, 3, 1, 2, 3, 1]


def test_a_leader_that_lost_its_majority_is_proposed_when_who_stands_asks_for_it() -> None:
    """It reports again and alone has frames that may be committed; the candidate withdraws at once."""
    members, standing = led_by_first(), ProposalState(Proposal(2, SECOND), 2, since_s=0.0)
    steps_back = silent(2, epoch=2, suggested_leader=FIRST, suggested_above_epoch=2)
    said(silent(1, end=200, epoch=2), steps_back, silent(3, epoch=2), members=members)
    assert next_proposal(members.sets["e"], standing) == Proposal(3, FIRST)


@pytest.mark.parametrize("more", [{"is_electable": False}, {"role": "SLAVE"}])
def test_a_leader_that_lost_its_majority_is_proposed_when_it_alone_can_lead(more: dict[str, object]) -> None:
    """Replicas that cannot lead have no turn to wait for."""
    members = led_by_first()
    said(silent(1, end=200), silent(2, **more), silent(3, **more), members=members)
    assert next_proposal(members.sets["e"], STANDING) == Proposal(2, FIRST)


def test_of_five_those_that_miss_the_leader_go_before_one_that_hears_it() -> None:
    """A replica that is cut off with the leader has a longer log, but comes last while it receives heartbeats."""
    members = ReplicaSets(lease_s=3.0)
    said(*(report(number, voters=5, is_leading=number == 1) for number in (1, 2, 3, 4, 5)), members=members)
    said(silent(1, voters=5, end=200), report(2, voters=5, end=200), members=members)
    said(*(silent(number, voters=5) for number in (3, 4, 5)), members=members)
    assert next_proposal(members.sets["e"], STANDING) == Proposal(2, THIRD)


def test_voters_that_a_cut_off_leader_alone_names_keep_nobody_from_following_it() -> None:
    """The leader alone had removed the third one; each replica uses the voters of its own log."""
    members, standing, order = led_by_first(), STANDING, list[int]()
    said(silent(1, end=200, voters=2), silent(2), silent(3, end=101), members=members)
    for _ in range(2):
        proposal = next_proposal(members.sets["e"], standing)
        assert proposal is not None
        order.append(proposal.leader.number)
        standing = dataclasses.replace(standing.with_stored(proposal, 0.0), since_s=-100.0)
    assert order == [3, 2]


def test_whom_a_cut_off_leader_alone_has_removed_may_be_asked_for() -> None:
    """It is ahead of the candidate, and a voter by both logs."""
    members, standing = led_by_first(), ProposalState(Proposal(2, SECOND), 2, since_s=0.0)
    steps_back = silent(2, epoch=2, suggested_leader=THIRD, suggested_above_epoch=2)
    said(silent(1, end=200, voters=2), steps_back, silent(3, epoch=2, end=101), members=members)
    assert next_proposal(members.sets["e"], standing) == Proposal(3, THIRD)


def test_who_votes_by_the_last_word_and_not_by_its_own_log_is_not_proposed() -> None:
    """Only the leader's log names it as a voter, and of the two earlier voters only the last leader is proposed."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, voters=2, is_leading=True), report(2, voters=2), members=members)
    said(silent(1, voters=3, end=200), silent(2, voters=2), silent(3, voters=2), members=members)
    assert next_proposal(members.sets["e"], STANDING) == Proposal(2, FIRST)


def test_a_leader_that_its_own_majority_hears_is_not_disturbed_by_an_old_log() -> None:
    """Two of five miss the leader, and one of them does not know yet that there are more than three."""
    members = ReplicaSets(lease_s=3.0)
    said(*(report(number, voters=5, is_leading=number == 1) for number in (1, 2, 4, 5)), members=members)
    said(silent(2, voters=5), silent(3, voters=3, end=50), members=members)
    assert next_proposal(members.sets["e"], STANDING) is None


def test_a_leader_that_is_gone_hears_no_leader_either() -> None:
    """Its lease expired, it left, or it restarted: one other replica that misses it completes the majority."""
    members = led_by_first()
    said(report(1, is_leaving=True), members=members)
    assert next_proposal(said(report(2), members=members), STANDING) is None
    assert next_proposal(said(silent(3), members=members), STANDING) == Proposal(2, SECOND)
    members = led_by_first()
    said(report(1, incarnation=2), silent(3), members=members)
    assert next_proposal(members.sets["e"], STANDING) == Proposal(2, FIRST)


def test_a_leader_that_only_this_name_server_does_not_hear_is_not_gone() -> None:
    """One follower misses it too, as behind the same network failure; the other one receives its heartbeats."""
    members = led_by_first()
    members.expire(3.0)
    said(report(2), silent(3), now_s=3.0, members=members)
    assert next_proposal(members.sets["e"], STANDING) is None
    assert next_proposal(said(silent(2), now_s=3.0, members=members), STANDING) == Proposal(2, SECOND)


def test_a_minority_is_not_proposed() -> None:
    """Two of five without a leader cannot win; neither can one of three whose leader has stopped."""
    members = ReplicaSets(lease_s=3.0)
    assert next_proposal(said(silent(4, voters=5), silent(5, voters=5), members=members), ProposalState()) is None
    members = led_by_first()
    members.expire(10.0)
    assert next_proposal(said(silent(3), now_s=10.0, members=members), STANDING) is None


def test_a_proposal_gets_time() -> None:
    """Older reports do not count against it; after its time another replica has a turn, then the first again."""
    members = ReplicaSets(lease_s=30.0)
    standing = ProposalState(Proposal(1, FIRST), 1, since_s=10.0)
    reports = [silent(number, tail_epoch=0) for number in (1, 2, 3)]
    assert next_proposal(said(*reports, now_s=10.0 + PROPOSAL_TIMEOUT_S - 0.1, members=members), standing) is None
    late = said(*reports, now_s=10.0 + PROPOSAL_TIMEOUT_S, members=members)
    assert next_proposal(late, standing) == Proposal(2, SECOND)
    assert next_proposal(late, ProposalState(Proposal(2, SECOND), 2, since_s=0.0)) == Proposal(3, FIRST)


def test_everybody_has_a_turn_before_anybody_has_a_second() -> None:
    """Two of five that reach only each other may have the longest logs; the other three are a majority.

    After a replica has led, the turns start again.
    """
    members, standing, order = ReplicaSets(lease_s=30.0), STANDING, list[int]()
    silent_ones = [silent(number, voters=5, end=200 if number < 3 else 100) for number in (1, 2, 3, 4, 5)]
    said(report(1, voters=5, is_leading=True), members=members)
    for _ in range(7):
        proposal = next_proposal(said(*silent_ones, now_s=10.0, members=members), standing)
        assert proposal is not None
        order.append(proposal.leader.number)
        standing = standing.with_stored(proposal, now_s=0.0)
    assert order == [2, 3, 4, 5, 1, 2, 3]
    leads = report(3, voters=5, is_leading=True, epoch=standing.epoch)
    said(leads, members=members)
    proposal = next_proposal(said(*silent_ones, now_s=10.0, members=members), standing)
    assert proposal is not None
    assert proposal.leader.number == 1


def test_each_proposal_that_failed_gives_the_next_one_more_time() -> None:
    """Otherwise replicas with slow disks would always get the next request before they have stored their vote."""
    standing = ProposalState()
    for epoch, patience_s in ((4, 1.5), (5, 1.5), (6, 3.0), (7, 6.0), (8, 6.0), (5000, 6.0)):
        standing = standing.with_stored(Proposal(epoch, FIRST), now_s=10.0)
        members, everybody = ReplicaSets(lease_s=30.0), [silent(number, tail_epoch=0) for number in (1, 2, 3)]
        assert next_proposal(said(*everybody, now_s=10.0 + patience_s - 0.1, members=members), standing) is None
        assert next_proposal(said(*everybody, now_s=10.0 + patience_s, members=members), standing) == Proposal(
            epoch + 1, SECOND
        )
    members = ReplicaSets(lease_s=30.0)
    said(report(1, is_leading=True, epoch=5000), members=members)
    late = said(silent(1, epoch=5000), silent(2), silent(3), now_s=11.5, members=members)
    assert next_proposal(late, standing.with_stored(Proposal(5001, FIRST), now_s=10.0)) == Proposal(5002, SECOND)


def test_a_proposal_that_cannot_win_gets_no_time() -> None:
    """Its replica stopped, or another one has voted in a later epoch: the next epoch is above that."""
    standing = ProposalState(Proposal(4, FIRST), 4, since_s=0.0)
    assert next_proposal(said(silent(2), silent(3)), standing) == Proposal(5, SECOND)
    lifted = said(silent(1), silent(2, epoch=9), silent(3))
    assert next_proposal(lifted, standing) == Proposal(10, SECOND)


def test_a_restored_database_lifts_the_next_proposal() -> None:
    """Epochs that replicas or this name server have seen are never proposed again, whatever is stored."""
    assert next_proposal(said(silent(1, epoch=7), silent(2), silent(3)), ProposalState(None, 0)) == Proposal(8, FIRST)
    remembered = ProposalState(Proposal(20, FIRST), 20, since_s=-100.0).with_stored(Proposal(3, SECOND), 0.0)
    assert (remembered.proposal, remembered.stored_epoch) == (Proposal(20, FIRST), 3)
    assert next_proposal(said(silent(1), silent(2), silent(3)), remembered) == Proposal(21, SECOND)


def test_whom_a_member_asks_for_is_proposed_once() -> None:
    """A leader or a candidate names its successor; a proposal with an epoch above the request answers it."""
    members = led_by_first()
    said(report(1, suggested_leader=SECOND, suggested_above_epoch=1), members=members)
    assert next_proposal(members.sets["e"], STANDING) == Proposal(2, SECOND)
    answered = ProposalState(Proposal(2, SECOND), 2, since_s=0.0)
    assert next_proposal(members.sets["e"], answered) is None
    said(report(1, suggested_leader=THIRD, suggested_above_epoch=6), members=members)
    assert next_proposal(members.sets["e"], answered) == Proposal(7, THIRD)
    said(report(3, epoch=7), members=members)
    assert next_proposal(members.sets["e"], answered) is None, "it stands already: the leader itself has told it"


def test_who_was_overtaken_waits_for_whom_the_others_have_promised() -> None:
    """It requests an epoch above that of another replica, which may still be storing its vote, so they could alternate.

    A leader that continues, while another replica has voted in that epoch, is proposed after that replica's time.
    """
    standing = ProposalState(Proposal(4, THIRD), 4, since_s=10.0)
    for asking in (silent(2, epoch=3), report(2, epoch=3, is_leading=True)):
        for now_s, then in ((10.5, None), (10.0 + PROPOSAL_TIMEOUT_S, Proposal(5, SECOND))):
            asks = dataclasses.replace(asking, suggested_leader=SECOND, suggested_above_epoch=4)
            members = ReplicaSets(lease_s=30.0)
            said(report(1, is_leading=True, epoch=3), members=members)
            assert next_proposal(said(asks, report(3, epoch=4), now_s=now_s, members=members), standing) == then
            above = dataclasses.replace(
                asks, suggested_above_epoch=9
            )  # the epoch of a replica that does not report here
            assert next_proposal(said(above, now_s=now_s, members=members), standing) == Proposal(10, SECOND)


def test_who_was_overtaken_asks_in_vain_when_the_other_one_has_led() -> None:
    """It may be cut off from that leader and repeat the request for long; neither leader nor successor is disturbed."""
    standing = ProposalState(Proposal(4, THIRD), 4, since_s=-100.0)
    asks = silent(1, epoch=3, suggested_leader=FIRST, suggested_above_epoch=4)
    members = ReplicaSets(lease_s=3.0)
    said(asks, report(2, epoch=4), report(3, epoch=4, is_leading=True), members=members)
    assert next_proposal(members.sets["e"], standing) is None
    said(report(3, epoch=4, suggested_leader=SECOND, suggested_above_epoch=4), members=members)
    assert next_proposal(members.sets["e"], standing) == Proposal(5, SECOND)


def test_a_successor_that_stands_is_not_proposed_above_itself() -> None:
    """The former leader may report first, and has voted by then; a proposal would end the successor's term."""
    members = led_by_first()
    said(report(1, epoch=2, suggested_leader=SECOND, suggested_above_epoch=1), members=members)
    assert next_proposal(members.sets["e"], STANDING) is None


@pytest.mark.parametrize("more", [{"is_electable": False}, {"role": "SLAVE"}, {"is_leaving": True}])
def test_who_cannot_or_must_not_lead_is_not_proposed(more: dict[str, object]) -> None:
    """Neither for its longer log, nor because a leader requests it."""
    members = led_by_first()
    said(report(1, is_leaving=True), silent(2), silent(3, end=200, **more), members=members)
    assert next_proposal(members.sets["e"], STANDING) in (None, Proposal(2, SECOND))
    members = led_by_first()
    said(report(1, suggested_leader=THIRD, suggested_above_epoch=1), report(3, **more), members=members)  # type: ignore[arg-type]
    assert next_proposal(members.sets["e"], STANDING) is None


def test_a_damaged_disk_has_no_say_in_who_votes() -> None:
    """It reports the longest end of its log, and its log may end before the frame that replaced a disk (seed 102).

    Its voters named the old disk of the third replica, so that only the second was proposed, repeatedly, and could not
    win. There was no leader, although a majority was intact.
    """
    before = (*ids(1, 2), ReplicaId(3, "emptied"))
    for owed in (100, 150):  # the end of the best other log, and a larger one
        members = led_by_first()
        damaged = silent(1, voters=before, is_electable=False, end=owed)
        said(damaged, silent(2, end=90), silent(3, end=100), members=members)
        assert next_proposal(members.sets["e"], STANDING) == Proposal(2, THIRD)


def test_two_members_take_nothing_over() -> None:
    """The last leader is proposed when it reports again; the other one never is, although its log is longer."""
    first = FIRST
    standing = ProposalState(Proposal(3, first), 3, since_s=-100.0)
    both = said(silent(1, voters=2, epoch=3), silent(2, voters=2, epoch=3, end=200))
    assert next_proposal(both, standing) == Proposal(4, first)
    members = ReplicaSets(lease_s=3.0)
    said(report(1, voters=2, is_leaving=True), silent(2, voters=2), members=members)
    assert next_proposal(members.sets["e"], standing) is None
    assert next_proposal(
        said(silent(1, voters=2), silent(2, voters=2, role="SLAVE", end=200)), ProposalState()
    ) == Proposal(2, first)


def test_one_member_needs_nobody() -> None:
    """A sole voter becomes leader without a proposal, and no database is read."""
    assert next_proposal(said(silent(1, voters=1)), ProposalState()) is None


def test_learners_neither_count_nor_lead() -> None:
    """Only voters can miss a leader, and only they are proposed."""
    learner = silent(4, end=500, tail_epoch=1)
    assert next_proposal(said(report(1, is_leading=True), report(2), silent(3), learner), STANDING) is None
    assert next_proposal(said(silent(1), silent(2), silent(3), learner), STANDING) == Proposal(2, SECOND)


def test_an_operator_elects_where_nobody_proposes() -> None:
    """Of two replicas the one with the complete log, by its number."""
    members = said(silent(1, voters=2), silent(2, voters=2, role="SLAVE", end=200))
    assert operator_choice(members, ProposalState(Proposal(3, FIRST), 3), 2) == Proposal(4, SECOND)


def test_an_operator_elects_beside_a_damaged_disk_that_once_had_more() -> None:
    """Two intact disks of three can agree; the damaged one could not be elected."""
    members = said(silent(1, is_electable=False, end=101), silent(2), silent(3, end=90))
    assert operator_choice(members, ProposalState(), 2) == Proposal(2, SECOND)


def test_of_two_disks_with_one_number_the_one_that_is_there_is_elected() -> None:
    """The other disk was lost and is not removed yet, so it cannot be started first."""
    voters = (*ids(1, 2), ReplicaId(3, "lost"), THIRD)
    members = said(*(silent(number, voters=voters) for number in (1, 2, 3)))
    assert operator_choice(members, ProposalState(), 3) == Proposal(2, THIRD)


@pytest.mark.parametrize(
    ("members", "number", "words"),
    [
        ((report(1, is_leading=True), report(2), report(3)), 2, "transfer leadership instead"),
        ((silent(1), silent(2, is_electable=False)), 2, "cannot become leader"),
        ((silent(1), silent(2)), 3, "start the replica first"),
        ((silent(1),), 1, "start one of 2, 3"),
        ((silent(1), silent(2, end=101)), 1, "elect replica 2"),
        ((silent(1, is_electable=False, end=101), silent(2)), 2, "1 of 3 voters can vote for replica 2.*one of 3"),
        ((silent(1), *(silent(n, is_electable=False, end=101) for n in (2, 3))), 1, "1 of 3 voters .*elect --lose"),
    ],
)
def test_an_election_that_cannot_be_says_why(members: tuple[ReplicaReport, ...], number: int, words: str) -> None:
    """Nothing is proposed, and the error names the remedy."""
    with pytest.raises(Conflict, match=words):
        operator_choice(said(*members), STANDING, number)


def test_an_election_of_nobody() -> None:
    """A number or a disk of no voter is not found."""
    with pytest.raises(NotFound, match="give one of 1, 2, 3"):
        operator_choice(said(silent(1), silent(2)), STANDING, 4)
    with pytest.raises(NotFound):
        operator_choice(said(silent(1), silent(2)), STANDING, 1, "another disk")


def test_tails_compare_by_epoch_first() -> None:
    """A short log of a later epoch is ahead of a long one of an earlier epoch."""
    assert LogTail(2, 1) > LogTail(1, 999)
    assert ReplicaId(1, "a") != ReplicaId(1, "b")
