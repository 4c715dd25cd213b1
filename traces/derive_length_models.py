"""Derive the embedded length models from token counts of public data sets.

    python derive_length_models.py FILE...

Each FILE is one of the sources below, known by its name. A model is written beside this script (or to --out):
provenance, figures of the rows kept, counts of two-dimensional bins and their means; never the rows.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Rule = Callable[[IntArray, IntArray], tuple[IntArray, IntArray]]

MAX_TOTAL = 2048
LAST_EXACT = 24
RATIO = 1.2
PERCENTILES = (10, 50, 90, 99)


def clip_outputs(inputs: IntArray, outputs: IntArray) -> tuple[IntArray, IntArray]:
    """The rule of the PagedAttention artifact: drop input >= 2048, clip output to 2048 - input."""
    kept = inputs < MAX_TOTAL
    return inputs[kept], np.minimum(outputs[kept], MAX_TOTAL - inputs[kept])


def drop_long(inputs: IntArray, outputs: IntArray) -> tuple[IntArray, IntArray]:
    """Keep rows with input + output <= 2048."""
    kept = inputs + outputs <= MAX_TOTAL
    return inputs[kept], outputs[kept]


class Source(NamedTuple):
    """One file of token counts: its columns, which rows count, and what to say of it."""

    model: str
    columns: tuple[str, str]
    where: tuple[str, str] | None
    rule: Rule
    rows_by_rule: int
    origin: str
    licence: str
    rule_text: str


SOURCES = {
    "sharegpt_v3_sample1002_turns_opt.csv": Source(
        "sharegpt",
        ("user_tokens", "assistant_tokens"),
        ("turn", "0"),
        clip_outputs,
        972,
        "ShareGPT V3 (unfiltered, cleaned, split), sample of conversations, OPT tokens without the BOS",
        "token counts only; no text of the data set is contained or recoverable",
        "first turn of each conversation; drop input >= 2048; clip output to 2048 - input (PagedAttention artifact)",
    ),
    "sharegpt_v3_lengths_llama_nanoflow.csv": Source(
        "sharegpt_llama",
        ("ContextTokens", "GeneratedTokens"),
        None,
        drop_long,
        55_857,
        "ShareGPT V3, first human/assistant pair of each conversation, LLaMA tokens as counted by NanoFlow",
        "Apache-2.0 (NanoFlow); token counts only",
        "keep input + output <= 2048; the artifact's clipping would keep 56,684 rows of mean 176.37 / 319.13, "
        "with prompts further from the paper's mean of 161.31",
    ),
    "alpaca_lengths_opt.csv": Source(
        "alpaca",
        ("input_tokens", "output_tokens"),
        ("source", "random"),
        clip_outputs,
        6_047,
        "Stanford Alpaca, random sample of its rows, OPT tokens",
        "token counts only; the text of Stanford Alpaca (CC BY-NC 4.0) is neither contained nor recoverable",
        "source = random; drop input >= 2048; clip output to 2048 - input (PagedAttention artifact)",
    ),
}


def bin_edges() -> list[int]:
    """First integer of each bin, and the end: width 1 up to 24 tokens, then each a fifth longer than the one before."""
    edges = list(range(1, LAST_EXACT + 1))
    while edges[-1] <= MAX_TOTAL:
        edges.append(min(max(edges[-1] + 1, round(edges[-1] * RATIO)), MAX_TOTAL + 1))
    return edges


def read_rows(path: Path, source: Source) -> tuple[IntArray, IntArray]:
    """[rows] input and output lengths that the rule keeps."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if source.where is None or row[source.where[0]] == source.where[1]]
    inputs, outputs = (np.array([int(row[column]) for row in rows], dtype=np.int64) for column in source.columns)
    inputs, outputs = source.rule(inputs, outputs)
    if len(inputs) != source.rows_by_rule:
        raise SystemExit(
            f"{path}: the rule keeps {len(inputs)} rows, not {source.rows_by_rule}; is it another version?"
        )
    return inputs, outputs


def figures(inputs: IntArray, outputs: IntArray) -> dict[str, Any]:
    """What draws from the model must reproduce; `resident` is the time-average of tokens held while decoding."""
    resident = float((outputs * inputs + outputs * (outputs - 1) / 2).sum() / outputs.sum())
    return {
        "input_mean": round(float(inputs.mean()), 4),
        "output_mean": round(float(outputs.mean()), 4),
        "input_percentiles": percentiles(inputs),
        "output_percentiles": percentiles(outputs),
        "resident_tokens_mean": round(resident, 4),
    }


def percentiles(values: IntArray) -> dict[str, float]:
    """Percentile -> tokens, interpolated."""
    return {str(p): round(float(np.percentile(values, p)), 4) for p in PERCENTILES}


def count_bins(inputs: IntArray, outputs: IntArray, edges: list[int]) -> dict[str, Any]:
    """Mean input of each input bin, mean output of each output bin, and [input bin, output bin, count] triples.

    Means go with the bins of one axis, since those of a pair's bin would give away a row that is alone in it.
    """
    columns = [np.searchsorted(edges, values, side="right") - 1 for values in (inputs, outputs)]
    found, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    return {
        "input_means": bin_means(inputs, columns[0], edges),
        "output_means": bin_means(outputs, columns[1], edges),
        "bins": np.column_stack([found, counts]).tolist(),
    }


def bin_means(values: IntArray, bins: IntArray, edges: list[int]) -> list[float]:
    """[bins] mean of the values in each bin; an empty bin's centre."""
    counts = np.bincount(bins, minlength=len(edges) - 1)
    centres = (np.array(edges[:-1]) + np.array(edges[1:]) - 1) / 2
    sums = np.bincount(bins, values, minlength=len(edges) - 1)
    means: list[float] = np.where(counts > 0, sums / np.maximum(counts, 1), centres).round(2).tolist()
    return means


def derive(path: Path) -> dict[str, Any]:
    """The model of one source file."""
    if path.name not in SOURCES:
        raise SystemExit(f"{path}: unknown source; known are {', '.join(SOURCES)}")
    source = SOURCES[path.name]
    inputs, outputs = read_rows(path, source)
    positive = (inputs > 0) & (outputs > 0)
    edges = bin_edges()
    return {
        "name": source.model,
        "origin": source.origin,
        "licence": source.licence,
        "rule": source.rule_text,
        "source_file": path.name,
        "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "rows_by_rule": len(inputs),
        "rows_without_input_or_output_dropped": int((~positive).sum()),
        "rows": int(positive.sum()),
        "max_total": MAX_TOTAL,
        "figures": figures(inputs[positive], outputs[positive]),
        "edges": edges,
        **count_bins(inputs[positive], outputs[positive], edges),
    }


def to_text(model: dict[str, Any]) -> str:
    """JSON with one key, or one bin, a line."""
    head = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in model.items() if key != "bins"]
    bins = ",\n".join(json.dumps(row, separators=(",", ":")) for row in model["bins"])
    return "{\n" + ",\n".join(head) + ',\n"bins": [\n' + bins + "\n]\n}\n"


def main() -> None:
    """Write the model of each file given."""
    parser = argparse.ArgumentParser(description="Derive kvsim's embedded length models.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    for path in arguments.files:
        model = derive(path)
        (arguments.out / f"{model['name']}.json").write_text(to_text(model), encoding="utf-8")
        print(f"{model['name']}: {model['rows']} rows in {len(model['bins'])} bins")


if __name__ == "__main__":
    main()
