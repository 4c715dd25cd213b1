"""`ModelRunner`: weights, KV pool and CUDA graphs on the device; one step's inputs in, its tokens out.

Legend: T tokens, S samples, E hidden size.
"""

from __future__ import annotations

import gc
import logging
import time
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gpu_backend.attention.base import Attention
from gpu_backend.batch import Batch
from gpu_backend.buckets import Buckets, Shape, bucket_of, decode_shape, make_buckets, mixed_shape
from gpu_backend.graphs import GraphPool, can_capture, no_collection
from gpu_backend.inputs import Step
from gpu_backend.kernels.prefill_attention import query_tile
from gpu_backend.kv_cache import KVCache
from gpu_backend.models.decoder import Decoder
from gpu_backend.models.load import load_decoder
from gpu_backend.packing import Buffers, Packed, batch_of, fill_padding
from gpu_backend.sampling import Sampler
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DecoderSpec:
    """All that the weights depend on."""

    model: ModelSpec
    weights: str | None
    dtype: torch.dtype
    device: torch.device
    seed: int


@dataclass(frozen=True)
class RunnerSpec:
    """All that a runner depends on; limits of None are none."""

    decoder: DecoderSpec
    attention: str
    temperature: float
    cuda_graphs: bool
    num_slots: int
    block_size: int
    max_model_len: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None


class ModelRunner:
    """Runs forward passes, captured where a graph fits.

    Args:
        decoder: of an earlier runner with the same `DecoderSpec`.

    Attributes:
        buckets: sizes of the captured graphs.
        max_rows: rows of the largest decode bucket, and rows of one token in the largest mixed one.
        query_tile: tokens a query tile.
    """

    def __init__(self, spec: RunnerSpec, attention: Attention, decoder: Decoder | None = None) -> None:
        model, dtype, device = spec.decoder.model, spec.decoder.dtype, spec.decoder.device
        self.spec = spec
        self.decoder = decoder or load_decoder(
            model, weights=spec.decoder.weights, dtype=dtype, device=device, seed=spec.decoder.seed
        )
        self.cache = KVCache(model, spec.num_slots, spec.block_size, dtype=dtype, device=device)
        self.sampler = Sampler(spec.temperature, seed=spec.decoder.seed, device=device)
        self._attention = attention
        self.width = -(-spec.max_model_len // spec.block_size)
        captured = spec.cuda_graphs and can_capture(device) and attention.capturable
        self.buckets = make_buckets(spec.max_num_seqs, spec.max_num_batched_tokens) if captured else Buckets()
        self.max_rows = max(self.buckets.decode, default=0)
        self.query_tile = query_tile(model.num_heads // model.num_kv_heads)
        shapes = [
            *(mixed_shape(tokens, self.max_rows, self.query_tile) for tokens in reversed(self.buckets.mixed)),
            *(decode_shape(rows) for rows in reversed(self.buckets.decode)),
        ]
        self.buffers = Buffers(shapes, self.width, device)
        # what passes hand to heads, and what comes out, on the host
        self._hidden_SE = torch.zeros((self.max_rows, model.hidden_size), dtype=dtype, device=device)
        self._ids_S = torch.zeros(self.max_rows, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._passes: dict[Shape, torch.cuda.CUDAGraph] = {}
        self._heads: dict[int, torch.cuda.CUDAGraph] = {}
        if captured:
            self._capture(shapes)

    def run(self, step: Step) -> Tensor | None:
        """Launch a step; [samples or more] int64 ids, valid once the device is done with it, or None."""
        samples = len(step.drawn_rows)
        if not step.captured:
            return self._launch(step)
        self._passes[step.shape].replay()
        if step.shape.longs and samples:
            bucket = bucket_of(self.buckets.samples, samples)
            assert bucket is not None
            self._heads[bucket].replay()
        return self._ids_S if samples else None

    def reset(self) -> None:
        """Draw from the seed's first number again."""
        self.sampler.reset()

    def free(self) -> None:
        """Give the device's memory back, whoever still knows this runner; it is of no further use."""
        self._passes.clear()
        self._heads.clear()
        del self.decoder, self.cache, self._hidden_SE, self._ids_S

    @torch.inference_mode()
    def _launch(self, step: Step) -> Tensor | None:
        """Kernel by kernel."""
        step.packed.fetch()
        batch = batch_of(step.packed, step.shape, step.width, self.query_tile, step.max_seq_len)
        hidden_SE = self._pass(batch)
        return self._head(hidden_SE) if len(step.drawn_rows) else None

    def _pass(self, batch: Batch) -> Tensor:
        hidden_TE = self.decoder.hidden(batch, self.cache, self._attention)
        return hidden_TE.index_select(0, batch.sample_tokens)

    def _head(self, hidden_SE: Tensor) -> Tensor:
        return self.sampler.sample(self.decoder.logits(hidden_SE))

    def _captured_pass(self, packed: Packed, batch: Batch) -> None:
        """From inputs on the host to states for a head, of a decode step to ids on the host."""
        packed.fetch()
        hidden_SE = self._pass(batch)
        if len(batch.query_tiles):
            self._hidden_SE[: len(hidden_SE)].copy_(hidden_SE)
        else:
            self._captured_head(hidden_SE)

    def _captured_head(self, hidden_SE: Tensor) -> None:
        self._ids_S[: len(hidden_SE)].copy_(self._head(hidden_SE), non_blocking=True)

    @torch.inference_mode()
    def _capture(self, shapes: list[Shape]) -> None:
        """Capture every pass and head over inputs that are all padding."""
        start = time.perf_counter()
        graphs = GraphPool(self.spec.decoder.device, (self.sampler.generator,) if self.spec.temperature else ())
        bound = self.width * self.spec.block_size
        with no_collection():
            for shape in shapes:
                packed = self.buffers.take(shape, self.width)
                fill_padding(packed.fields)
                packed.seal()
                batch = batch_of(packed, shape, self.width, self.query_tile, bound)
                self._passes[shape] = graphs.capture(partial(self._captured_pass, packed, batch))
            for samples in reversed(self.buckets.samples):
                self._heads[samples] = graphs.capture(partial(self._captured_head, self._hidden_SE[:samples]))
        self.reset()  # captured passes drew too
        log.info("captured %d CUDA graphs in %.1f s", len(self._passes) + len(self._heads), time.perf_counter() - start)


_last: ModelRunner | None = None


def obtain_runner(spec: RunnerSpec, attention: Attention) -> ModelRunner:
    """The last runner of this process if it is the same, else a new one in its place, the weights kept if they are.

    Raises:
        ConfigError: the device is too small, or the weights do not fit the model.
    """
    global _last
    gc.unfreeze()
    if _last is not None and _last.spec == spec:
        _last.reset()
        return _last
    decoder = None
    if _last is not None:
        decoder = _last.decoder if _last.spec.decoder == spec.decoder else None
        _last.free()
        _last = None
    gc.collect()
    device = spec.decoder.device
    if device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        _last = ModelRunner(spec, attention, decoder)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"{device} is too small for {spec.decoder.model.name}, its KV pool and the activations of a step; lower "
            "kv.num_blocks, hardware.memory_utilization or scheduler.max_num_batched_tokens"
        ) from error
    return _last
