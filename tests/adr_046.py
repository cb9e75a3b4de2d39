"""ADR-046, sentence by sentence, and the tests that show each.

`test_adr_046.py` holds that each test is there, on every engine. A test is named by its
file, its class and its function, and by as much of its parameters as matters; where it
runs on each engine, ``{engine}`` and ``{Engine}`` stand for that. What the ADR says of its
ancestor's own means (savepoints, TLA+, Rust) is not here; where we do otherwise, ADRs 0001
to 0004 of this project say why.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field, frozen

TABLE = "runtime/test_commit_table_on_{engine}.py::TestOn{Engine}::test_"
OUTCOMES = "runtime/test_outcomes_on_{engine}.py::TestOn{Engine}::test_"
STORE = "stores/test_{engine}.py::Test{Engine}::test_"
CANARY = "runtime/test_canary.py::TestOn{Engine}::test_"
PROGRESS = "runtime/test_progress.py::TestOn{Engine}::test_"
PARITY = "test_parity.py::test_a_job_ends_the_same[{engine}-"
OWN = "test_parity.py::test_a_job_that_completes_itself_ends_the_same[{engine}-"
HARNESS = "test_testing.py::test_"
ENDING = OUTCOMES + "each_ending_fires_its_outcome_alone_in_a_worker_and_in_the_harness["


@frozen
class Says:
    """One sentence of it, shortened, and what shows it."""

    sentence: str
    tests: tuple[str, ...]
    needs_store: bool = field(default=True, kw_only=True)
    """Whether it must be shown on every engine: all but what is decided before any store."""


def says(sentence: str, *tests: str, needs_store: bool = True) -> Says:
    return Says(sentence, tests, needs_store=needs_store)


ADR: dict[str, list[Says]] = {
    "Context": [
        says(
            "Completion clears the progress buffer before specs run, on both engines.",
            OUTCOMES + "a_completion_clears_the_progress_before_its_follow_ups_see_the_row",
            STORE + "completion_removes_the_progress_and_writes_the_output",
        ),
    ],
    "Decision": [
        says(
            "Staging serializes the args, computes the unique key, checks the limits and"
            " validates every rule the insert would otherwise enforce in the database.",
            TABLE + "what_the_schema_would_refuse_is_refused_when_it_is_staged",
            TABLE + "and_its_extremes_are_stored_as_they_were_staged",
            "core/test_request.py::test_nothing_gets_through_that_the_schema_would_refuse",
        ),
        says(
            "StageError converts to JobError::Terminal by default.",
            TABLE + "Completed_after_a_failed_stage[False]",
        ),
        says(
            "A handler whose fan-out varies between attempts can map TooMany and TooLarge to a"
            " retryable error instead.",
            TABLE + "a_handler_may_turn_too_much_into_a_retry[too many]",
            TABLE + "a_handler_may_turn_too_much_into_a_retry[too large]",
        ),
        says(
            "A failed stage poisons the attempt, so the job goes to the DLQ when one is enabled"
            " and registered on_exhausted_enqueue specs fire.",
            TABLE + "Completed_after_a_failed_stage[True]",
            ENDING + "poisoned-worker]",
            ENDING + "poisoned-work_one]",
        ),
        says(
            "EnqueueRequest::unique and ::metadata do not replace the rest.",
            TABLE + "a_follow_up_is_enqueued_as_any_other_job_with_these_options",
            "core/test_request.py::test_methods_set_one_thing_and_leave_the_rest",
        ),
        says(
            "Context that must not affect deduplication, such as A's ID, belongs in metadata.",
            TABLE + "deduplication_across_A_jobs",
        ),
    ],
    "Python surface": [
        says(
            "The keyword arguments mirror Transaction.insert; unique_opts={} means the default"
            " options; args are converted to JSON when staged.",
            TABLE + "a_follow_up_is_enqueued_as_any_other_job_with_these_options",
        ),
        says(
            "A request that cannot be staged raises StagingError, a subclass of TerminalError"
            " chained from the original error, and poisons the attempt.",
            TABLE + "what_the_schema_would_refuse_is_refused_when_it_is_staged",
            TABLE + "Completed_after_a_failed_stage",
        ),
        says(
            "Any unrecognised return value maps to Completed.",
            PARITY + "return something",
        ),
    ],
    "Lifetime of the staging buffer": [
        says(
            "Sealed when the handler returns; later calls return Sealed.",
            TABLE + "leaving_the_nursery_seals",
            "core/test_staging.py::test_staging_after_the_seal_raises_and_changes_nothing",
        ),
        says(
            "A retried attempt starts with an empty buffer.",
            TABLE + "a_retried_attempt_starts_with_an_empty_buffer",
        ),
    ],
    "When staged follow-ups commit": [
        says(
            "Completed, and the lease-guarded completion commits: inserted in the completion"
            " transaction.",
            TABLE + "Completed_and_the_lease_guarded_completion_commits",
            PARITY + "return",
        ),
        says(
            "Completed, but the guard matches no row (rescued, cancelled or taken over first):"
            " discarded with the rolled-back transaction.",
            *[
                f"{TABLE}Completed_but_the_guard_matches_no_row[{first}]"
                for first in ("rescued", "cancelled", "taken over", "fenced")
            ],
            PARITY + "rescued meanwhile",
            PARITY + "cancelled meanwhile",
            PARITY + "its worker fenced",
        ),
        says(
            "Completed after a failed stage: discarded; the attempt fails terminally with the"
            " staging error.",
            TABLE + "Completed_after_a_failed_stage",
            PARITY + "poisoned",
        ),
        says(
            "RetryAfter, Snooze, Cancel, Err, panic: discarded.",
            TABLE + "RetryAfter_Snooze_Cancel",
            TABLE + "Err_panic",
            PARITY + "RetryAfter",
            PARITY + "Snooze",
            PARITY + "Cancel",
            PARITY + "raise",
            PARITY + "raise TerminalError",
            PARITY + "a group",
            PARITY + "interrupt",
        ),
        says(
            "WaitForCallback: discarded. Logged at warn with kind, job ID and count, never args,"
            " and counted in a metric.",
            TABLE + "WaitForCallback",
            PARITY + "parked",
            PARITY + "parked, answered",
            PARITY + "parked, answered before",
            PARITY + "parked, completed elsewhere",
            PARITY + "parked, timed out",
        ),
        says(
            "ctx.wait_for_callback(...) inside the handler, resumed, then Completed: inserted;"
            " the handler and its buffer stay alive across the wait.",
            TABLE
            + "ctx_wait_for_callback_inside_the_handler_resumed_then_Completed[listening]",
            TABLE + "ctx_wait_for_callback_inside_the_handler_resumed_then_Completed[deaf]",
            PARITY + "waited, answered",
            PARITY + "waited, answered before",
        ),
        says(
            "ctx.wait_for_callback(...) inside the handler, but complete_external completes the"
            " job: discarded; registered specs fire; the handler gets an error, and even a"
            " Completed from it would find no running row.",
            TABLE + "ctx_wait_for_callback_inside_the_handler_but_complete_external",
            PARITY + "waited, completed elsewhere",
            PARITY + "waited, completed elsewhere and swallowed",
            PARITY + "waited, failed elsewhere",
            PARITY + "waited, cancelled elsewhere",
            PARITY + "waited, timed out",
        ),
        says(
            "Deadline expiry abandons the handler, or shutdown cancels it before finalization:"
            " discarded; the handler runs again if attempts remain.",
            TABLE + "Deadline_expiry_abandons_the_handler",
            TABLE + "shutdown_cancels_it_before_finalization",
            PARITY + "deadline",
            PARITY + "deadline swallowed",
            PARITY + "deadline, last attempt",
            PARITY + "cut",
            PARITY + "waited, cut",
        ),
        says(
            "Shutdown cancels finalization, or the finalize deadline expires: committed with the"
            " completion if the commit landed, otherwise not; rescue re-runs the handler.",
            TABLE + "Shutdown_cancels_finalization[it landed]",
            TABLE + "Shutdown_cancels_finalization[it did not land]",
            TABLE + "the_finalize_deadline_expires",
        ),
    ],
    "How they are inserted": [
        says(
            "Registered Completed specs first, then the staged follow-ups in staging order.",
            TABLE + "registered_follow_ups_commit_with_it_and_come_first",
            TABLE + "fan_out_is_in_staging_order",
            STORE + "inserts_happen_in_the_order_of_the_plan",
        ),
        says(
            "Either all of it commits with the completion or none of it does.",
            OUTCOMES + "what_the_database_refuses_is_a_dead_letter_with_the_follow_ups_of_that",
            STORE + "a_plan_with_another_lease_is_stale_and_writes_nothing",
            "runtime/test_processes.py::test_random_kill_points",
        ),
        says(
            "A conflict on the deduplication index is skipped and the completion still commits.",
            STORE + "a_follow_up_whose_key_is_held_is_left_out_and_names_the_holder",
            TABLE + "deduplication_across_A_jobs",
            PARITY + "duplicates",
        ),
        says(
            "Any other error rolls the completion back.",
            OUTCOMES + "what_the_database_refuses_is_a_dead_letter_with_the_follow_ups_of_that",
            "runtime/test_processes.py"
            "::test_a_refused_insert_rolls_its_own_completion_back_and_no_other",
        ),
        says(
            "Skips are logged at debug with kinds and job IDs, never args.",
            TABLE + "skips_are_logged_at_debug_with_kinds_and_job_ids_never_args",
        ),
        says(
            "Path selection is per job: what one job stages is nothing to its neighbours.",
            STORE + "a_set_settles_each_plan_by_its_own_guard",
        ),
        says(
            "Finalize retries reuse the same follow-ups: borrowed by each attempt, never drained."
            " A commit whose acknowledgement was lost replays as stale and inserts nothing.",
            TABLE + "a_retried_finalization_inserts_once[lose_the_answer]",
            TABLE + "a_retried_finalization_inserts_once[roll_back]",
            STORE + "a_plan_applies_once",
        ),
    ],
    "Limits": [
        says(
            "At most 16 staged follow-ups per attempt.",
            TABLE + "more_than_16_poisons",
            TABLE + "fan_out_is_in_staging_order",
        ),
        says(
            "64 KiB of serialized requests (kind, queue, args, metadata, tags and ordering key)"
            " in total.",
            TABLE + "64_KiB_of_serialized_requests[byte 65,536]",
            TABLE + "64_KiB_of_serialized_requests[byte 65,537]",
        ),
        says(
            "Across any number of wait_for_callback resumes.",
            TABLE + "the_limits_hold_across_waits",
        ),
        says(
            "Both are constants in v1.",
            "core/test_staging.py::test_the_limits_are_the_adrs",
            needs_store=False,
        ),
        says(
            "Count: 16 unique follow-ups leave room for registered specs.",
            OUTCOMES + "a_follow_up_is_an_enqueue_like_any_other",
        ),
        says(
            "Size: what stays in memory until finalization is bounded by the finalizer's"
            " capacity.",
            "runtime/test_finalize.py::test_attempts_wait_when_settlements_cannot_keep_up",
            needs_store=False,
        ),
    ],
    "Visibility and testing": [
        says(
            "Staged follow-ups appear only as the inserted jobs: not in A's row.",
            TABLE + "nothing_of_what_was_staged_is_on_the_row_of_A",
        ),
        says(
            "Each insert opens the usual producer span inside the completion transaction.",
            "test_telemetry.py::test_a_job_is_one_trace_from_its_enqueue_to_its_follow_ups",
            needs_store=False,
        ),
        says(
            "B's trace context is captured when it is staged.",
            TABLE + "a_follow_up_joins_the_trace_in_which_it_was_staged",
        ),
        says(
            "The value A computed is visible in B's args.",
            TABLE + "Completed_and_the_lease_guarded_completion_commits",
        ),
        says("Args are never logged.", CANARY + "no_path_logs_what_a_job_holds"),
        says(
            "The test harnesses behave like the runtime: work_one inserts staged follow-ups in"
            " the same transaction, applies poisoning, and discards on every other outcome.",
            PARITY.removesuffix("-"),
            OWN.removesuffix("-"),
            HARNESS + "one_job_is_worked_as_a_worker_would[{engine}",
            ENDING + "Completed-work_one]",
        ),
        says(
            "HandlerJob applies the same validation and limits and records each request in"
            " job.staged.",
            HARNESS + "a_handler_runs_without_a_store",
            HARNESS + "it_has_the_same_limits_and_poison",
            HARNESS + "what_cannot_be_staged_is_refused_with_its_cause",
            HARNESS + "sealed_it_refuses",
            needs_store=False,
        ),
    ],
    "Guarantees": [
        says(
            "Committed together or not at all. No row comes from an attempt that was rescued,"
            " cancelled, superseded or completed externally, or whose completion rolled back.",
            TABLE + "Completed_and_the_lease_guarded_completion_commits",
            TABLE + "Completed_but_the_guard_matches_no_row",
            TABLE + "ctx_wait_for_callback_inside_the_handler_but_complete_external",
            TABLE + "a_retried_finalization_inserts_once[roll_back]",
            "core/test_outcome.py::test_only_a_clean_completion_keeps_follow_ups",
        ),
        says(
            "One attempt's follow-ups. A job row completes at most once (admin retry does not"
            " reopen completed jobs), even when a rescued attempt and its replacement staged"
            " different values.",
            TABLE + "a_rescued_attempt_and_its_replacement_staged_different_values",
            STORE + "a_completed_job_never_moves",
        ),
        says(
            "Deduplication. A's completion commits with either a new row or an existing row"
            " holding the same key in one of its UniqueOpts::states.",
            STORE + "a_follow_up_whose_key_is_held_is_left_out_and_names_the_holder",
            STORE + "a_job_blocks_duplicates_exactly_in_the_states_of_its_mask",
            STORE + "of_equal_keys_in_one_set_the_first_plan_inserts",
            "runtime/test_processes.py"
            "::test_if_the_producer_rolls_back_the_follow_up_is_inserted",
        ),
        says(
            "A finished B blocks duplicates until its row is pruned; removing completed limits"
            " it to Bs still scheduled, available, running or retryable.",
            TABLE + "a_finished_follow_up_blocks_duplicates_if_completed_is_among_its_states",
            STORE + "completing_keeps_the_key_until_the_job_is_pruned",
        ),
        says(
            "Delivery. Each inserted follow-up is an ordinary job, delivered at least once.",
            TABLE + "a_follow_up_is_an_ordinary_job_delivered_at_least_once",
        ),
        says(
            "Not guaranteed: handler side effects, exactly-once execution. No follow-up refers"
            " to what an attempt that did not commit has made.",
            TABLE + "a_rescued_attempt_and_its_replacement_staged_different_values",
        ),
        says(
            "Not guaranteed: freedom from deadlock. (Here it is.)",
            "runtime/test_processes.py::test_opposite_orders_of_unique_keys_do_not_deadlock",
            needs_store=False,
        ),
        says(
            "Not guaranteed: prompt failure on a non-retryable insert error. (Here it is.)",
            OUTCOMES + "what_the_database_refuses_is_a_dead_letter_with_the_follow_ups_of_that",
        ),
        says(
            "A follow-up of A's own kind and args, with A's own unique options, collides with A"
            " itself and the chain stops. Give a continuation different args or options.",
            TABLE + "a_job_that_stages_its_own_key_is_its_own_duplicate",
            STORE + "a_job_that_stages_its_own_key_is_its_own_duplicate",
        ),
        says(
            "Two follow-ups with the same key staged in one attempt collapse to one, as do"
            " different args when by_args is false.",
            TABLE + "two_equal_keys_of_one_attempt_collapse_to_the_first",
            TABLE + "different_args_collapse_if_they_are_no_part_of_the_key",
        ),
    ],
    "Validation": [
        says(
            "Integration: insertion with completion and deduplication across A jobs.",
            TABLE + "Completed_and_the_lease_guarded_completion_commits",
            TABLE + "deduplication_across_A_jobs",
        ),
        says(
            "Integration: discard on RetryAfter, Snooze, Cancel, retryable and terminal errors,"
            " a panic and WaitForCallback.",
            TABLE + "RetryAfter_Snooze_Cancel",
            TABLE + "Err_panic[retryable Err]",
            TABLE + "Err_panic[terminal Err]",
            TABLE + "Err_panic[panic]",
            TABLE + "WaitForCallback",
        ),
        says(
            "Integration: poisoning after a swallowed staging error.",
            TABLE + "Completed_after_a_failed_stage[True]",
        ),
        says(
            "Integration: sealing after the handler returns.",
            TABLE + "leaving_the_nursery_seals",
        ),
        says(
            "Integration: fan-out with a registered spec in the same completion.",
            TABLE + "registered_follow_ups_commit_with_it_and_come_first",
        ),
        says(
            "Integration: a rejected insert rolls the completion back.",
            OUTCOMES + "what_the_database_refuses_is_a_dead_letter_with_the_follow_ups_of_that",
            "runtime/test_processes.py"
            "::test_a_refused_insert_rolls_its_own_completion_back_and_no_other",
        ),
        says(
            "Integration: the test harness.",
            HARNESS + "one_job_is_worked_as_a_worker_would[{engine}",
            PARITY.removesuffix("-"),
        ),
        says(
            "Executor: a finalize retry after a lost acknowledgement inserts the staged follow-up"
            " once.",
            TABLE + "a_retried_finalization_inserts_once[lose_the_answer]",
        ),
        says(
            "Executor: a completion for a superseded lease inserts none.",
            TABLE + "Completed_but_the_guard_matches_no_row[taken over]",
        ),
        says(
            "Staging limits and poisoning are unit-tested.",
            "core/test_staging.py",
            needs_store=False,
        ),
        says(
            "Python: staging and deduplication through the runtime, poisoning, discard on Cancel,"
            " work_one and the HandlerJob stand-in.",
            TABLE + "deduplication_across_A_jobs",
            TABLE + "Completed_after_a_failed_stage",
            TABLE + "RetryAfter_Snooze_Cancel",
            HARNESS + "one_job_is_worked_as_a_worker_would[{engine}-cancel",
            HARNESS + "it_has_the_same_limits_and_poison",
        ),
    ],
    "Relationship to other ADRs": [
        says(
            "ADR-042: staging is not offered where a handler completes the job in a transaction"
            " of its own.",
            "runtime/test_completing.py"
            "::test_staging_inside_is_refused_and_cannot_be_swallowed",
            OWN + "completed",
            OWN + "rolled back",
        ),
    ],
    "Notifications (ours)": [
        says(
            "Other workers hear of a follow-up that whoever settles cannot run at once.",
            TABLE + "others_are_told_of_follow_ups_that_whoever_settles_cannot_run",
            TABLE + "others_are_told_of_each_follow_up_however_soon_after_another",
            STORE + "a_follow_up_and_a_hand_back_are_news_of_work",
        ),
    ],
}


def sentences() -> Iterator[tuple[str, Says]]:
    """Each sentence, with its section."""
    for section, all_of_it in ADR.items():
        for one in all_of_it:
            yield section, one
