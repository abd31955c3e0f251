"""What is reported: the means of sums, also when a run is interrupted; what is printed of it."""

import math

import pytest

from transformer.config import Config, ModelConfig, OptimizerConfig, TrainConfig
from transformer.errors import UserError
from transformer.training.loop import Clock
from transformer.training.loss import LossSums
from transformer.training.optimizer import learning_rate
from transformer.training.reporter import Reporter, _minutes
from transformer.training.step import StepMetrics


def metrics(gradient_norm=1.0, skipped=False, **sums):
    return StepMetrics(LossSums(**sums), gradient_norm, skipped)


@pytest.fixture
def written():
    """What is handed on."""
    return []


@pytest.fixture
def reporter(written):
    def build(step=0, clock=None, unreported=(), warmup_steps=4, threshold=0.0, **settings):
        return Reporter(
            written.append,
            Config(
                model=ModelConfig(target_vocab_size=100),
                optimizer=OptimizerConfig(warmup_steps=warmup_steps, spike_threshold=threshold),
                train=TrainConfig(**settings),
            ),
            step,
            clock or Clock(),
            epoch=lambda step: step / 10,
            unreported=dict(unreported),
        )

    return build


def test_means_are_sums_over_tokens_not_means_of_means(reporter, written, capsys):
    writer = reporter(log_every=2, steps=10)
    writer.update(1, metrics(loss=20.0, nll=10.0, correct=1.0, tokens=10.0))
    writer.update(2, metrics(loss=10.0, nll=80.0, correct=29.0, tokens=20.0, gradient_norm=4.0))
    writer.close()
    [line] = written
    assert line["step"] == 2
    assert line["loss"] == pytest.approx(30 / 30)
    assert line["perplexity"] == pytest.approx(math.exp(90 / 30))
    assert line["accuracy"] == pytest.approx(30 / 30)
    assert line["gradient_norm"] == 2.5
    assert line["learning_rate"] == learning_rate(writer.config, 2)
    assert line["epoch"] == 0.2
    assert line["tokens_per_second"] > 0
    shown = capsys.readouterr().out
    for word in ("update 2/10", "loss 1.000 nats/token", "perplexity 20.09", "tokens/s", "left"):
        assert word in shown


def test_each_report_begins_anew_and_the_last_update_is_reported(reporter, written):
    writer = reporter(log_every=2, steps=5)
    for step in range(1, 6):
        writer.update(step, metrics(loss=float(step), nll=1.0, correct=0.0, tokens=1.0))
    writer.close()
    assert [(line["step"], line["loss"]) for line in written] == [
        (2, 1.5),
        (4, 3.5),
        (5, 5),
    ]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_validation_loss_that_is_not_a_number_is_an_error_that_names_the_update(reporter, loss):
    with pytest.raises(UserError, match="update 8 is (nan|inf): lower.*no checkpoint has"):
        reporter().check("validation loss", 8, loss)


def test_skipped_updates_are_told_of_and_counted_and_in_no_mean(reporter, written, capsys):
    writer = reporter(log_every=3)
    good = {"loss": 8.0, "nll": 8.0, "correct": 1.0, "tokens": 4.0}
    writer.update(1, metrics(**good))
    writer.update(2, metrics(math.nan, True, loss=12.0, nll=12.0, correct=0.0, tokens=4.0))
    writer.update(3, metrics(**good, gradient_norm=3.0))
    [line] = written
    assert (line["loss"], line["gradient_norm"], line["skipped"]) == (2.0, 2.0, 1)
    assert "update 2 was skipped: loss 3 nats/token, gradient norm nan" in (capsys.readouterr().out)
    nothing = {"loss": math.nan, "nll": 0.0, "correct": 0.0, "tokens": 0.0}
    for step in (4, 5, 6):
        writer.update(step, metrics(math.nan, True, **nothing))
    assert len(written) == 1 and writer.unreported["skipped"] == 3
    writer.close()


def test_an_update_that_was_skipped_for_its_norm_names_the_setting(reporter, capsys):
    writer, sums = reporter(threshold=2.5), {"nll": 8.0, "correct": 1.0, "tokens": 4.0}
    writer.update(1, metrics(9.0, True, loss=8.0, **sums))
    said = "gradient norm 9, more than 2.5 times its average (optimizer.spike_threshold)"
    assert said in capsys.readouterr().out
    for loss, norm in ((math.nan, 9.0), (8.0, math.inf)):
        writer.update(2, metrics(norm, True, loss=loss, **sums))
    assert "spike" not in capsys.readouterr().out
    writer.close()


def test_a_validation_is_one_more_line(reporter, written):
    writer = reporter()
    writer.write(1000, {"validation_bleu": 31.5})
    writer.close()
    [line] = written
    assert (line["step"], line["validation_bleu"]) == (1000, 31.5)


def test_a_line_after_a_stop_counts_the_updates_before_it_too(reporter, written):
    def sums(step):
        return metrics(loss=0.1 * step, nll=0.3, correct=1.0, tokens=7.0 + step)

    undisturbed = reporter(log_every=4)
    for step in range(1, 5):
        undisturbed.update(step, sums(step))
    undisturbed.close()
    expected = written.pop()

    stopped = reporter(log_every=4)
    for step in (1, 2, 3):
        stopped.update(step, sums(step))
    stopped.close()
    resumed = reporter(step=3, log_every=4, unreported=stopped.unreported)
    resumed.update(4, sums(4))
    resumed.close()
    [line] = written
    for name in ("step", "loss", "perplexity", "accuracy", "learning_rate", "epoch"):
        assert line[name] == expected[name]


class FakeClock:
    seconds = 0.0


def test_time_left_does_not_count_the_compiling_of_first_updates(reporter, capsys):
    clock = FakeClock()
    writer = reporter(clock=clock, log_every=10, steps=1010)
    for step in range(1, 11):
        clock.seconds += 60.0 if step <= 4 else 0.5  # four shapes are compiled, a minute each
        writer.update(step, metrics(loss=1.0, nll=1.0, correct=0.0, tokens=1.0))
    writer.close()
    assert "8 min 20 s left" in capsys.readouterr().out  # 1,000 updates of half a second
    assert _minutes(119.7) == "2 min 0 s"


def test_a_model_that_is_worse_than_guessing_after_the_warm_up_is_told_of_once(reporter, capsys):
    writer = reporter(log_every=1, warmup_steps=3)
    for step, nll in enumerate([9.0, 9.0, 4.0, 9.0, 9.0], start=1):  # guessing: log 100 = 4.6
        writer.update(step, metrics(loss=1.0, nll=nll, correct=0.0, tokens=1.0))
        assert bool(writer.warning) == (step > 3)
    writer.close()
    shown = capsys.readouterr().out
    assert shown.count("training has diverged: 9 nats/token, more than the 4.6 of guessing") == 1
    assert "optimizer.scale" in shown


def test_a_new_model_has_not_diverged_but_one_that_explodes_while_warming_up_has(reporter):
    writer = reporter(log_every=1, warmup_steps=1000, steps=2)
    writer.update(1, metrics(loss=1.0, nll=9.0, correct=0.0, tokens=1.0))
    assert not writer.warning
    writer.update(2, metrics(loss=1.0, nll=1e9, correct=0.0, tokens=1.0))
    assert "training has diverged: 1e+09 nats/token" in writer.warning
    writer.close()
