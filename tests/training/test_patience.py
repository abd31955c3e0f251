"""Early stopping: how long it waits for a better score."""

from transformer.training.patience import Patience


def after(limit, *merits):
    patience = Patience(limit)
    for merit in merits:
        patience.validated(merit)
    return patience


def test_it_is_out_after_so_many_validations_without_a_better_one():
    assert not after(2, 1.0, 3.0, 2.0).is_out
    assert after(2, 1.0, 3.0, 2.0, 3.0).is_out  # as good is not better


def test_a_better_score_begins_the_wait_anew():
    assert not after(2, 3.0, 2.0, 3.5, 1.0).is_out


def test_the_first_score_is_better_than_none_however_bad():
    assert after(1, -1e9) == Patience(1, best=-1e9, waited=0)


def test_without_a_limit_it_is_never_out():
    assert not after(0, *range(100, 0, -1)).is_out


def test_it_goes_on_from_what_a_checkpoint_says():
    before = after(3, 5.0, 4.0)
    resumed = Patience(3, before.best, before.waited)
    for patience in (before, resumed):
        patience.validated(4.5)
    assert before == resumed
