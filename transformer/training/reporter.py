"""Reports of training: a progress bar or lines, and metrics."""

import math
import statistics
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields

from tqdm import tqdm

from transformer.config import Config
from transformer.errors import UserError
from transformer.training.loop import Clock
from transformer.training.loss import LossSums
from transformer.training.optimizer import learning_rate
from transformer.training.step import StepMetrics
from transformer.training.validation import perplexity

REMEDY = "lower optimizer.scale, raise optimizer.warmup_steps or set optimizer.clip_norm"
"""Of training that diverges."""

WORST_NEW_MODEL = 3
"""A new model cannot have this many times the loss of guessing."""

SUMS = (*(field.name for field in fields(LossSums)), "gradient_norm", "updates", "skipped")
"""What is summed between reports; the last three are a sum over updates, their number, and the
number of skipped updates, which are in no other sum."""


class Reporter:
    """Adds up the sums of updates and reports their means every `log_every` updates.

    Sums and tokens/s count what is predicted: target tokens, masked tokens or labels.
    """

    def __init__(
        self,
        write: Callable[[dict[str, float]], None] | None,
        config: Config,
        step: int,
        clock: Clock,
        epoch: Callable[[int], float],
        unreported: Mapping[str, float],
    ):
        """Begins after `step` updates. `write` takes each line of metrics, with its step.

        `unreported` is that of the interrupted run's reporter at that step, or empty. Without
        `write` it prints nothing, as in all processes but the first.
        """
        self.config, self.settings = config, config.train
        self.clock, self.epoch = clock, epoch
        self.unit = config.model.unit
        self.guessing = math.log(config.model.classes or config.model.target_vocab_size)
        self.warmed_up = config.optimizer.warmup_steps
        self.warning: str | None = None
        self._write = write
        self.bar = tqdm(
            total=self.settings.steps,
            initial=step,
            unit="update",
            dynamic_ncols=True,
            disable=not (write and sys.stderr.isatty()),
        )
        self.sums = dict.fromkeys(SUMS, 0.0) | {name: unreported.get(name, 0.0) for name in SUMS}
        self.since = clock.seconds - unreported.get("seconds", 0.0)
        self.durations: deque[float] = deque(maxlen=self.settings.log_every)
        self.last_update = clock.seconds

    @property
    def unreported(self) -> dict[str, float]:
        """The sums of the updates since the last report, and the seconds that they took."""
        return self.sums | {"seconds": self.clock.seconds - self.since}

    def update(self, step: int, metrics: StepMetrics) -> None:
        """Adds the metrics of an update; a skipped one is printed, and is in no mean."""
        if metrics.skipped:
            loss = float(metrics.sums.loss) / max(float(metrics.sums.tokens), 1)
            norm, limit = float(metrics.gradient_norm), self.config.optimizer.spike_threshold
            reason = f", more than {limit:g} times its average (optimizer.spike_threshold)"
            self.say(
                f"update {step:,} was skipped: loss {loss:.3g} nats/{self.unit}, gradient norm "
                f"{norm:.3g}{reason * (math.isfinite(loss) and math.isfinite(norm))}"
            )
            self.sums["skipped"] += 1
        else:
            added = vars(metrics.sums) | {"gradient_norm": metrics.gradient_norm, "updates": 1}
            for name, value in added.items():
                self.sums[name] += float(value)
        self.durations.append(self.clock.seconds - self.last_update)
        self.last_update = self.clock.seconds
        self.bar.update(1)
        if step % self.settings.log_every == 0 or step == self.settings.steps:
            self._report(step)

    def check(self, name: str, step: int, loss: float) -> None:
        """Raises UserError if the loss is not finite."""
        if not math.isfinite(loss):
            raise UserError(
                f"the {name} of update {step} is {loss}: {REMEDY}; no checkpoint has these weights"
            )

    def _report(self, step: int) -> None:
        tokens = self.sums["tokens"]
        if not tokens:  # all were skipped
            return
        nll = self.sums["nll"] / tokens
        values = {
            "loss": self.sums["loss"] / tokens,
            "perplexity": perplexity(nll),
            "accuracy": self.sums["correct"] / tokens,
            "gradient_norm": self.sums["gradient_norm"] / self.sums["updates"],
            "skipped": self.sums["skipped"],
            "learning_rate": float(learning_rate(self.config, step)),
            "tokens_per_second": tokens / max(self.clock.seconds - self.since, 1e-9),
        }
        epoch = self.epoch(step)
        line = (
            f"epoch {epoch:.1f}  loss {values['loss']:.3f} nats/{self.unit}  perplexity "
            f"{short(values['perplexity'])}  {values['tokens_per_second']:,.0f} {self.unit}s/s  "
            f"learning rate {values['learning_rate']:.1e}"
        )
        if self.bar.disable and self._write:
            # Without validations. The median leaves out the time of compiling.
            left = (self.settings.steps - step) * statistics.median(self.durations)
            print(f"update {step:,}/{self.settings.steps:,}  {line}  {_minutes(left)} left")
        else:
            self.bar.set_postfix_str(line)
        self.write(step, values | {"epoch": epoch})
        self._check_divergence(step, nll)
        self.sums = dict.fromkeys(SUMS, 0.0)
        self.since = self.clock.seconds

    def _check_divergence(self, step: int, nll: float) -> None:
        """Warns once of a model that is worse than guessing, or, before the end of the warm-up,
        much worse than a new one."""
        before, self.warning = self.warning, None
        if nll > self.guessing * (1 if step > self.warmed_up else WORST_NEW_MODEL):
            self.warning = (
                f"warning: training has diverged: {nll:.3g} nats/{self.unit}, more than the "
                f"{self.guessing:.1f} of guessing; {REMEDY}"
            )
            if not before:
                self.say(self.warning)

    def validation(
        self, step: int, scores: Mapping[str, float], loss_error: float, labels: Mapping[str, str]
    ) -> None:
        """Prints and writes the scores of a validation. `labels` name those of translations."""
        line = (
            f"update {step:,}: validation loss {scores['loss']:.3f} nats/{self.unit} (standard "
            f"error {loss_error:.3f}), perplexity {short(scores['perplexity'])}, accuracy "
            f"{scores['accuracy']:.1%}"
        )
        self.say(line + "".join(f", {labels[n]} {scores[n]:.1f}" for n in labels if n in scores))
        values = {f"validation_{name}": value for name, value in scores.items()}
        self.write(step, values | {"validation_loss_error": loss_error})

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes a line of metrics, with the seconds that updates have taken so far."""
        if self._write:
            self._write({"step": step, "seconds": round(self.clock.seconds, 3), **values})

    def say(self, text: str) -> None:
        """Prints above the progress bar."""
        if self._write:
            self.bar.write(text, file=sys.stdout)
            sys.stdout.flush()

    def close(self) -> None:
        """Ends the progress bar."""
        self.bar.close()


def short(perplexity: float) -> str:
    """With two decimals, or four digits if it is huge."""
    return f"{perplexity:,.2f}" if perplexity < 1e6 else f"{perplexity:.4g}"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
