"""When to end early: after some validations in a row without a better score."""

from dataclasses import dataclass


@dataclass
class Patience:
    """Early stopping by any score, on any schedule of the learning rate.

    limit   `train.patience`; 0: it never ends
    best    the highest merit so far, None before the first validation
    waited  validations since then
    """

    limit: int
    best: float | None = None
    waited: int = 0

    def validated(self, merit: float) -> None:
        """Takes the merit of one more validation; higher is better."""
        if self.best is None or merit > self.best:
            self.best, self.waited = merit, 0
        else:
            self.waited += 1

    @property
    def is_out(self) -> bool:
        """Whether `limit` validations in a row have brought no better score."""
        return 0 < self.limit <= self.waited
