"""The staging buffer: limits, poison, seal, threads."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.errors import (
    StagingError,
    StagingInvalid,
    StagingNotOffered,
    StagingSealed,
    StagingTooLarge,
    StagingTooMany,
    TerminalError,
)
from awa_trio._core.job import PreparedInsert
from awa_trio._core.staging import MAX_FOLLOW_UPS, MAX_STAGED_BYTES, Sealed, StagingBuffer


def b(size: int = 10, n: int = 0) -> PreparedInsert:
    return PreparedInsert("b", "q", b"[%d]" % n, size=size)


def test_the_limits_are_the_adrs() -> None:
    assert (MAX_FOLLOW_UPS, MAX_STAGED_BYTES) == (16, 65_536)


def test_what_is_staged_is_sealed_in_order() -> None:
    buffer = StagingBuffer()
    follow_ups = [b(n=n) for n in range(5)]
    for follow_up in follow_ups:
        buffer.stage(follow_up)
    assert buffer.staged == tuple(follow_ups)
    assert buffer.seal() == Sealed(tuple(follow_ups), None)


def test_the_16th_is_accepted_and_the_17th_poisons_and_changes_nothing() -> None:
    buffer = StagingBuffer()
    for n in range(16):
        buffer.stage(b(n=n))
    with pytest.raises(StagingTooMany) as caught:
        buffer.stage(b(n=16))
    sealed = buffer.seal()
    assert caught.value.limit == 16
    assert len(sealed.follow_ups) == 16
    assert sealed.poison is caught.value


def test_byte_65536_is_accepted_and_the_next_poisons_and_changes_nothing() -> None:
    buffer = StagingBuffer()
    buffer.stage(b(65_535))
    buffer.stage(b(1))
    with pytest.raises(StagingTooLarge) as caught:
        buffer.stage(b(1))
    assert caught.value.limit_bytes == 65_536
    assert len(buffer.seal().follow_ups) == 2


def test_after_a_follow_up_that_was_too_large_a_smaller_one_still_fits() -> None:
    buffer = StagingBuffer()
    with pytest.raises(StagingTooLarge):
        buffer.stage(b(65_537))
    buffer.stage(b(65_536))
    assert buffer.seal().poison is not None


def test_the_first_poison_is_the_one_recorded() -> None:
    buffer = StagingBuffer()
    first, second = StagingInvalid("first"), StagingInvalid("second")
    assert buffer.refuse(first) is first
    assert buffer.refuse(second) is second
    assert buffer.poison is first


def test_staging_after_the_seal_raises_and_changes_nothing() -> None:
    buffer = StagingBuffer()
    buffer.stage(b())
    sealed = buffer.seal()
    with pytest.raises(StagingSealed):
        buffer.stage(b())
    assert isinstance(buffer.refuse(StagingInvalid("late")), StagingSealed)
    assert buffer.seal() is sealed
    assert sealed.poison is None


@pytest.mark.parametrize(
    "error",
    [StagingInvalid("x"), StagingTooMany(16), StagingTooLarge(65_536), StagingSealed()],
)
def test_every_staging_error_is_terminal_unless_the_handler_says_otherwise(
    error: StagingError,
) -> None:
    assert isinstance(error, StagingError)
    assert isinstance(error, TerminalError)


def stage_four(
    n: int, buffer: StagingBuffer, start: threading.Barrier, staged: list[int]
) -> None:
    start.wait()
    for m in range(4):
        try:
            buffer.stage(b(n=4 * n + m))
        except StagingSealed:
            return
        staged.append(4 * n + m)


def test_threads_that_stage_and_seal_at_once_lose_nothing() -> None:
    for _ in range(50):
        buffer = StagingBuffer()
        start = threading.Barrier(5)
        staged: list[int] = []
        threads = [
            threading.Thread(target=stage_four, args=(n, buffer, start, staged))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        start.wait()
        sealed = buffer.seal()
        for thread in threads:
            thread.join()
        assert sorted(f.args for f in sealed.follow_ups) == sorted(b"[%d]" % n for n in staged)


@given(st.lists(st.integers(1, 20_000), max_size=30))
def test_a_buffer_never_exceeds_its_limits_and_is_poisoned_iff_it_refused(
    sizes: list[int],
) -> None:
    buffer = StagingBuffer()
    refused = False
    for size in sizes:
        try:
            buffer.stage(b(size))
        except StagingError:
            refused = True
    sealed = buffer.seal()
    assert len(sealed.follow_ups) <= 16
    assert sum(f.size for f in sealed.follow_ups) <= 65_536
    assert (sealed.poison is not None) == refused


def test_where_an_attempt_completes_itself_staging_is_refused_and_poisons() -> None:
    buffer = StagingBuffer()
    buffer.withdraw()
    with pytest.raises(StagingNotOffered, match=r"tx\.enqueue") as caught:
        buffer.stage(b())
    assert buffer.poison is caught.value
    assert isinstance(caught.value, TerminalError)


def test_if_it_did_not_complete_itself_staging_is_offered_again() -> None:
    buffer = StagingBuffer()
    buffer.withdraw()
    buffer.offer()
    buffer.stage(b())
    assert len(buffer.seal().follow_ups) == 1


def test_what_is_staged_already_must_not_be_lost() -> None:
    buffer = StagingBuffer()
    buffer.stage(b())
    with pytest.raises(StagingNotOffered, match="has staged 1 follow-ups"):
        buffer.withdraw()
    assert buffer.poison is None
    buffer.stage(b())
    assert len(buffer.seal().follow_ups) == 2


def test_a_poisoned_attempt_cannot_complete_itself_either() -> None:
    buffer = StagingBuffer()
    poison = StagingInvalid("no")
    buffer.refuse(poison)
    with pytest.raises(StagingInvalid) as caught:
        buffer.withdraw()
    assert caught.value is poison
