"""Which checkpoint is best."""

import pytest

from transformer.runs.checkpoint_files import merit

SCORES = {"loss": 2.0, "perplexity": 7.4, "accuracy": 0.5, "bleu": 20.0}


@pytest.mark.parametrize(
    "best_by, better", [("loss", {"loss": 1.9}), ("accuracy", {"accuracy": 0.6}),
                        ("bleu", {"bleu": 21.0})],
)  # fmt: skip
def test_lower_loss_higher_accuracy_and_higher_bleu_are_better(best_by, better):
    worse = {name: value + 1 if name == "loss" else value - 0.1 for name, value in SCORES.items()}
    worse |= {best_by: SCORES[best_by]}
    assert merit({**worse, **better}, best_by) > merit(SCORES, best_by)


def test_without_a_validation_there_is_no_merit():
    assert merit({}, "loss") is None
