"""`Format`: how the records of one kind of trace become rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar

from kvsim.workload.formats.fields import Fields
from kvsim.workload.formats.row import Row
from kvsim.workload.formats.tokens import TokenCounter


class Format(ABC):
    """One kind of trace. An object reads one file once, from the first record to the last.

    Attributes:
        name: on the command line.
        required, optional: fields that a record must and may have; a file is known by them.
        columns: of the trace table, beside lengths, that this kind fills -> the field they come from.
        has_text: lengths are counted in text, with `counter`.
        left_out: reason -> how often something that is no request was left out.
    """

    name: ClassVar[str]
    required: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Mapping[str, str]] = {}
    has_text: ClassVar[bool] = False

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()

    @abstractmethod
    def rows(self, fields: Fields) -> Iterable[Row]:
        """The requests of one record.

        Raises:
            RowError: the record is not as the format wants it.
        """


class TextFormat(Format):
    """A trace that holds texts; a pair with an empty one is left out."""

    has_text = True

    def __init__(self, counter: TokenCounter) -> None:
        super().__init__()
        self._counter = counter

    def pair(self, prompt: str, output: str, session_id: str | None = None, turn: int | None = None) -> list[Row]:
        """The request with these texts, or nothing."""
        if not prompt or not output:
            self.left_out["pairs with an empty text"] += 1
            return []
        return [Row(None, self._counter.prompt(prompt), self._counter.output(output), session_id, turn)]
