"""How much a server may be asked."""

from dataclasses import dataclass
from typing import Annotated

from transformer.config.settings import Limit, Positive


@dataclass(frozen=True)
class Limits:
    """How much may be asked; more gets an answer that says so."""

    characters: Positive = 5000
    """Longest text of a request, all of its lines together."""
    lines: Positive = 100
    """Most lines of a request, or texts of a list."""
    waiting: Positive = 1000
    """Most lines that wait, of all requests together."""
    connections: Positive = 500
    """Most connections; the next is told so, and closed."""
    seconds: Annotated[float, Limit(0, above=True)] = 10.0
    """In which the head of a request must have come, and then its text."""

    @property
    def bytes(self) -> int:
        """Of a request: JSON and forms write a character with 12 letters at most."""
        return 12 * self.characters + 10_000
