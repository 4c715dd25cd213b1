"""Every token slot of the pool in one of nine classes."""

from __future__ import annotations

from .pools import Cache
from .schedulers import Scheduler

CLASSES = (
    "token_state",
    "reserved",
    "internal",
    "rounding",
    "holes",
    "swap_in_flight",
    "cached",
    "free_usable",
    "free_unusable",
)


def split(scheduler: Scheduler, cache: Cache, preempted: bool) -> dict[str, int]:
    """The classes in tokens, after schedule() and with this step's tokens written."""
    memory = dict.fromkeys(CLASSES, 0)
    for seq in scheduler.running:
        held = len(seq.table) * cache.block_size
        final = seq.prompt + seq.output
        if not scheduler.reserves:
            memory["token_state"] += seq.computed
            memory["internal"] += held - seq.computed
            continue
        memory["rounding"] += held - seq.reserved
        if seq.dead:
            memory["internal"] += seq.reserved
            continue
        memory["token_state"] += seq.computed
        memory["reserved"] += max(0, min(seq.reserved, final) - seq.computed)
        memory["internal"] += max(0, seq.reserved - final)
    starved = preempted or (bool(scheduler.waiting) and not scheduler.fits(scheduler.waiting[0]))
    free = len(cache.pool.free_blocks()) * cache.block_size
    memory["free_unusable" if starved else "free_usable"] = free
    assert sum(memory.values()) == cache.num_blocks * cache.block_size, f"classes do not add up: {memory}"
    return memory
