"""`GpuExecutor`: a plan becomes a forward pass, and its duration is measured."""

from __future__ import annotations

import gc
import time
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gpu_backend.attention.base import Attention
from gpu_backend.device import check_room, environment, open_device
from gpu_backend.inputs import InputBuilder
from gpu_backend.memory_check import MemoryCheck
from gpu_backend.models.load import check_decoder
from gpu_backend.prompts import Prompts, RandomPrompts
from gpu_backend.runner import DecoderSpec, ModelRunner, RunnerSpec, obtain_runner
from gpu_backend.sequences import Sequences
from kvsim.checks import check_flag, check_number, shown
from kvsim.errors import ConfigError, DeviceError
from kvsim.plan import NO_ROWS, IntArray, StepPlan, StepResult
from kvsim.specs import ModelSpec
from kvsim.workload.outcomes import Outcomes


class GpuExecutor:
    """Carries plans out on a device, one step a call; lengths are forced, texts are the model's own.

    A step lasts from the end of the one before, so that nothing a server does is left off the clock; the first one
    from its own start. So ``schedule`` includes kvsim's own checks and records, and every few thousand steps writing
    these to files, where a server would write its logs; memory checks are off the clock. Padding of a static batch is
    computed but belongs to no sequence; its finished members are decoded, and drawn from, over what they hold.
    Weights, KV pool and CUDA graphs are made before the first step.

    Args:
        device: ``cuda``, ``cuda:1`` or ``cpu``.
        dtype: of weights, activations and KV: bfloat16, float16 or float32.
        weights: real ones, see `load_decoder`; None draws them.
        temperature: of sampling; 0 takes the most likely token.
        cuda_graphs: capture forward passes; without them, and on a CPU, every kernel is launched on its own.
        check_memory: count on the device what lies in the pool, every step (INV-tokens); slow.
        contiguous: every sequence lies in one piece.
        prompts: token ids; None draws them.
        keep_tokens: keep what ended sequences drew for `tokens`.

    Raises:
        ConfigError: no such device, too little memory, weights that do not fit, more than one GPU, or an attention that
            wants sequences in one piece where they are not.
    """

    def __init__(
        self,
        *,
        device: str,
        dtype: str,
        weights: str | None,
        temperature: float,
        cuda_graphs: bool,
        check_memory: bool,
        attention: Attention,
        outcomes: Outcomes,
        model: ModelSpec,
        tensor_parallel: int,
        num_slots: int,
        block_size: int,
        max_model_len: int,
        max_num_seqs: int | None,
        max_num_batched_tokens: int | None,
        contiguous: bool,
        seed: int,
        prompts: Prompts | None = None,
        keep_tokens: bool = False,
    ) -> None:
        if not hasattr(attention, "contiguous"):
            raise ConfigError(
                f"executor.attention={shown(attention)}: is no attention backend; leave it out and give attention=NAME"
            )
        if attention.contiguous and not contiguous:
            raise ConfigError(
                f"attention: {type(attention).__name__} reads sequences that lie in one piece, which this allocator "
                "does not give; choose attention=triton_paged or a buddy allocator"
            )
        if tensor_parallel > 1:
            raise ConfigError(f"hardware.tensor_parallel={tensor_parallel}: executor=gpu runs on one GPU; give 1")
        check_number("executor.temperature", temperature, 0.0, 100.0)
        check_flag("executor.cuda_graphs", cuda_graphs)
        check_flag("executor.check_memory", check_memory)
        self._device, torch_dtype = open_device(device, dtype)
        check_decoder(model, weights)
        check_room(model, num_slots, dtype=torch_dtype, device=self._device)
        self._stream = torch.cuda.current_stream(self._device) if self._device.type == "cuda" else None
        self._attention = attention
        self._spec = RunnerSpec(
            DecoderSpec(model, weights, torch_dtype, self._device, seed),
            repr(attention),
            temperature,
            cuda_graphs,
            num_slots,
            block_size,
            max_model_len,
            max_num_seqs,
            max_num_batched_tokens,
        )
        self._outcomes = outcomes
        self._sequences = Sequences(
            prompts or RandomPrompts(seed, model.vocab_size), max_model_len, block_size, keep_tokens=keep_tokens
        )
        self._check_memory = check_memory
        self._ended: int | None = None

    @cached_property
    def _runner(self) -> ModelRunner:
        """Made when first needed: a sweep builds all its executors before the first of them runs."""
        runner = obtain_runner(self._spec, self._attention)
        gc.collect()
        gc.freeze()  # a full collection would walk over PyTorch in the middle of a step
        return runner

    @cached_property
    def _inputs(self) -> InputBuilder:
        runner = self._runner
        return InputBuilder(
            self._sequences,
            runner.buffers,
            runner.buckets,
            max_rows=runner.max_rows,
            query_tile=runner.query_tile,
        )

    @cached_property
    def _check(self) -> MemoryCheck | None:
        return MemoryCheck(self._runner.cache) if self._check_memory else None

    @property
    def buckets(self) -> dict[str, tuple[int, ...]]:
        """Sizes of the captured graphs: rows (decode), tokens (mixed), rows of the head (samples)."""
        return self._runner.buckets._asdict()

    @property
    def environment(self) -> dict[str, str | None]:
        """What measured times depend on; known before anything is made."""
        spec = self._spec
        return environment(self._device) | {"attention": spec.attention, "dtype": str(spec.decoder.dtype)}

    def tokens(self, seq_id: int) -> list[int]:
        """Tokens drawn for a sequence so far."""
        return self._sequences.drawn(seq_id)

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """One step.

        Raises:
            ConfigError: before the first one, see above.
            DeviceError: the device ran out of memory.
            InvariantError: with `check_memory`, the pool holds other tokens than the plan says.
        """
        runner, inputs, check = self._runner, self._inputs, self._check
        called = time.perf_counter_ns()
        if check:
            check.poison_freed(plan)
            self._synchronize()
        start = time.perf_counter_ns()
        begun = start if self._ended is None else self._ended + start - called
        try:
            step = inputs.prepare(plan)
            prepared = time.perf_counter_ns()
            ids = runner.run(step)
            # the device is busy: what does not need its result is done meanwhile
            stopped = self._outcomes.draw(plan, 1)
            inputs.foresee(step, plan, stopped)
            drawn = self._fetch(ids, len(step.drawn_rows))
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"{self._device} ran out of memory in step {plan.step} of {plan.total_tokens} tokens; lower "
                "kv.num_blocks, hardware.memory_utilization or scheduler.max_num_batched_tokens"
            ) from error
        computed = time.perf_counter_ns()
        inputs.take_in(step, drawn)
        ended = time.perf_counter_ns()
        if check:
            check.count(plan, self._sequences.stored_of(np.array(list(plan.tables), dtype=np.int64)))
        self._ended = time.perf_counter_ns() if check else ended
        breakdown = (start - begun, prepared - start, computed - prepared, ended - computed)
        return StepResult(np.array([ended - begun]), stopped, breakdown)

    def _fetch(self, ids: Tensor | None, samples: int) -> IntArray:
        """The first `samples` ids on the host, once the step is done."""
        self._synchronize()
        return NO_ROWS if ids is None else ids.cpu().numpy()[:samples]

    def _synchronize(self) -> None:
        """Wait until the device has nothing left to do."""
        if self._stream is not None:
            self._stream.synchronize()
