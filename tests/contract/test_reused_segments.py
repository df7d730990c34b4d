"""The log uses the files of deleted segments again, and no power cut shows it."""

from ortoo.enode.log.frame import ALIGNMENT_BYTES, HEADER_BYTES, body_problem, decode_header, may_resemble_frame
from ortoo.verification.store.crash_points import silence_logs
from tests.contract.reused_segments import FORGED_PAYLOAD, ReuseReport, enumerate_reuse, record_reuse


def test_a_power_cut_of_a_store_that_overwrites_deleted_segments_loses_nothing() -> None:
    """Nothing acknowledged is lost, no deleted message returns, and no frame in a message is taken for one of the log.

    Some restarts are cut again. Readers keep deleted files, whose bytes stay. G1, G3, G10, G11, G12.
    """
    report = enumerate_reuse(1, runs=3, every=60, restarts=1)
    assert report.reused > 30
    assert report.forged > 30
    assert report.watched > 10
    assert report.crashes.points == report.crashes.starts > 80
    assert report.crashes.torn_tails > 5
    assert report.crashes.restarts_after_crash == 3


def test_the_forged_frames_are_whole() -> None:
    """They would be read where they are meant to lie, so that the test above can fail."""
    with silence_logs():
        recording = record_reuse(1, report := ReuseReport())
    bodies = [one.batch.records for one in recording.history.sends if FORGED_PAYLOAD in one.batch.records]
    assert len(bodies) >= report.forged // 2
    for body in bodies:
        assert may_resemble_frame(body)
        header = decode_header(body[ALIGNMENT_BYTES:], int.from_bytes(body[ALIGNMENT_BYTES + 8 :][:8], "little"))
        assert body_problem(header, body[ALIGNMENT_BYTES + HEADER_BYTES :][: header.length]) == ""
