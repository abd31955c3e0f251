"""Which checkpoint is best."""

import pytest

from transformer.runs.checkpoint_files import selection_score

SCORES = {"loss": 2.0, "perplexity": 7.4, "accuracy": 0.5, "bleu": 20.0}


@pytest.mark.parametrize(
    "best_by, better", [("loss", {"loss": 1.9}), ("accuracy", {"accuracy": 0.6}),
                        ("bleu", {"bleu": 21.0}), ("auto", {"bleu": 21.0}),
                        ("auto", {"chrf": 1.0})],
)  # fmt: skip
def test_lower_loss_higher_accuracy_and_higher_bleu_are_better(best_by, better):
    worse = {name: value + 1 if name == "loss" else value - 0.1 for name, value in SCORES.items()}
    [judge] = better
    worse |= {judge: SCORES[judge]} if judge in SCORES else {}
    usual = SCORES | ({judge: 0.5} if judge not in SCORES else {})
    assert selection_score({**worse, **better}, best_by) > selection_score(usual, best_by)


def test_by_default_models_of_one_side_are_compared_by_their_loss():
    scores = {"loss": 2.0, "perplexity": 7.4, "accuracy": 0.5}
    assert selection_score(scores, "auto") == selection_score(scores, "loss") == -2.0


def test_without_a_validation_there_is_no_merit():
    assert selection_score({}, "loss") is None
