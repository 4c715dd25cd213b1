"""What the tests of trace formats share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Content -> path of a file that holds it; the name says nothing of the format."""

    def put(content: bytes | str, name: str = "input.dat") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return put
