"""ShareGPT V3: ``[{"id", "conversations": [{"from", "value"}, ...]}, ...]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kvsim.workload.formats.base import TextFormat
from kvsim.workload.formats.fields import Fields, identifier, present
from kvsim.workload.formats.row import Row, RowError
from kvsim.workload.formats.tokens import TokenCounter

HUMAN = ("human", "user")
ASSISTANT = ("gpt", "assistant", "chatgpt", "bing", "bard", "model")


class ShareGPT(TextFormat):
    """One row for each human message that an assistant's message follows; the history is not part of the prompt."""

    name = "sharegpt"
    required = ("conversations",)
    optional = ("id",)
    columns: ClassVar = {"session_id": "conversations", "turn": "conversations"}

    def __init__(self, counter: TokenCounter) -> None:
        super().__init__(counter)
        self._num_conversations = 0

    def rows(self, fields: Fields) -> Iterable[Row]:
        """See `Format`; a conversation without id gets its number from 0."""
        unnamed = str(self._num_conversations)
        self._num_conversations += 1
        session = identifier(fields, "id") if fields.get("id") is not None else unnamed
        rows: list[Row] = []
        question: str | None = None
        for role, text in _messages(fields):
            if role in HUMAN:
                self.left_out["messages without a partner"] += question is not None
                question = text
            elif role not in ASSISTANT:
                self.left_out["messages of neither human nor assistant"] += 1
            elif question is None:
                self.left_out["messages without a partner"] += 1
            else:
                rows += self.pair(question, text, session, len(rows) + 1)
                question = None
        self.left_out["messages without a partner"] += question is not None
        return rows


def _messages(fields: Fields) -> list[tuple[str, str]]:
    """(role, text) of each message."""
    conversation = present(fields, "conversations")
    if not isinstance(conversation, list):
        raise RowError("is not a list of messages", "conversations", conversation)
    messages = []
    for message in conversation:
        role, text = (message.get("from"), message.get("value")) if isinstance(message, dict) else (None, None)
        if not isinstance(role, str) or not isinstance(text, str):
            raise RowError("holds a message without the texts from and value", "conversations", conversation)
        messages.append((role, text))
    return messages
