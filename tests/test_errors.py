"""Errors that a user can act on."""

from harness.errors import InputError, RunError, unknown


def test_a_near_name_is_offered_and_a_far_one_lists_what_is_known():
    assert str(unknown("method", "strta", ["strata", "grpo"], hint="harness list methods")) == (
        'unknown method "strta"; did you mean "strata"? (harness list methods)'
    )
    assert str(unknown("method", "zzz", ["strata", "grpo"])) == 'unknown method "zzz"; known: grpo, strata'
    assert str(unknown("method", "zzz", [])) == 'unknown method "zzz"; known: none'


def test_exit_codes():
    assert (InputError.exit_code, RunError.exit_code) == (2, 1)
