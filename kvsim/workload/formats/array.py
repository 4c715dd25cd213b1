"""`ArrayReader`: the entries of a JSON array of any length, one after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from kvsim.errors import TraceError

CHUNK = 1 << 20
MARGIN = 64
"""Characters from the end within which an error may come from the text being cut there."""

_SPACE = re.compile(r"[ \t\n\r]*")


class ArrayReader:
    """Iterates over an array's entries. A window over the text holds one entry at a time, and a chunk.

    Args:
        read: the next so many characters, fewer at the end.
        path: for messages.
        max_entry: characters of the longest entry.

    Raises:
        TraceError: not an array, cut short, nested too deeply, or an entry too long; nothing can be skipped then.
    """

    def __init__(self, read: Callable[[int], str], path: Path, max_entry: int) -> None:
        self._read, self._path, self._max_entry = read, path, max_entry
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._at, self._number = "", 0, 0

    def __iter__(self) -> Iterator[object]:
        try:
            self._expect("[")
            if self._peek() == "]":
                self._at += 1
            else:
                yield self._entry()
                while self._expect(",", "]") == ",":
                    yield self._entry()
            if rest := self._peek():
                raise self._error(f"{rest!r} follows the end of the array")
        except UnicodeDecodeError:
            raise self._error("not UTF-8 text from here on") from None

    def _entry(self) -> object:
        self._number += 1
        self._peek()
        while True:
            try:
                value, self._at = self._decode(self._text, self._at)
                return value
            except RecursionError:
                raise self._error("nested too deeply") from None
            except json.JSONDecodeError as error:
                held = len(self._text) - self._at
                cut = error.pos > len(self._text) - MARGIN or error.msg.startswith("Unterminated string")
                if cut and held > self._max_entry:
                    raise self._error(f"is longer than {self._max_entry} characters") from None
                if not cut:
                    raise self._error(f"not JSON: {error.msg}") from None
                if not self._more(max(CHUNK, held)):
                    raise self._error(f"the file ends within the array, or not JSON: {error.msg}") from None
            except ValueError:  # Python's limit on the digits of a number
                raise self._error("a number has thousands of digits") from None

    def _expect(self, *marks: str) -> str:
        found = self._peek()
        if found not in marks:
            what = repr(found) if found else "the end of the file"
            raise self._error(f"{what} where {' or '.join(marks)} should be")
        self._at += 1
        return found

    def _peek(self) -> str:
        """The next character that is no white space, or nothing."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(CHUNK):
                return ""

    def _more(self, size: int) -> bool:
        chunk = self._read(size)
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def _error(self, problem: str) -> TraceError:
        return TraceError(f"{self._path}, record {self._number}: {problem}")
