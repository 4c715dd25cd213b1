"""Analytic cost model: each part of a step takes the time of its scarcer resource, compute or memory bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from kvsim.checks import check_flag, check_number
from kvsim.errors import InvariantError
from kvsim.plan import IntArray, StepPlan
from kvsim.specs import HardwareSpec, ModelSpec
from kvsim.units import NS_PER_S

US = 1e3


@dataclass(frozen=True)
class Efficiency:
    """Fractions of the data-sheet peaks that kernels reach.

    Attributes:
        gemm_memory: of memory bandwidth, reading weights.
        gemm_compute: of peak FLOP/s, in matrix products and in prefill attention.
        attention_memory: of memory bandwidth, reading and writing keys and values.
        interconnect: of link bandwidth, in an all-reduce.
    """

    gemm_memory: float
    gemm_compute: float
    attention_memory: float
    interconnect: float

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(f"cost.efficiency.{field.name}", getattr(self, field.name), 0.001, 1.0)


@dataclass(frozen=True)
class Host:
    """What the CPU does around each step: scheduling, input preparation, sampling, detokenizing.

    Attributes:
        fixed_us: microseconds a step.
        per_sequence_us: microseconds a sequence of the step.
        overlap: the host works beside the device (a step lasts as long as the slower); else they add.
    """

    fixed_us: float
    per_sequence_us: float
    overlap: bool

    def __post_init__(self) -> None:
        check_number("cost.host.fixed_us", self.fixed_us, 0.0, 1e9)
        check_number("cost.host.per_sequence_us", self.per_sequence_us, 0.0, 1e9)
        check_flag("cost.host.overlap", self.overlap)


class RooflineCost:
    """Step time of a dense decoder under tensor parallelism.

    device = products with the layers' weights + LM head of sampled rows + KV read and written + prefill attention
    + all-reduces + launches; every term is linear in tokens, context or both, or the larger of two such terms, so
    there is no table to fall out of. Embedding look-up and norms are not charged.

    Args:
        launch_us_per_layer: device microseconds a layer that no roofline explains: launches and gaps between kernels.
        allreduce_hop_us: latency of one hop; a ring all-reduce of n GPUs makes 2 (n - 1), two all-reduces a layer.

    Raises:
        ConfigError: a number out of range, or heads that the GPUs cannot share.
    """

    def __init__(
        self,
        model: ModelSpec,
        hardware: HardwareSpec,
        efficiency: Efficiency,
        host: Host,
        launch_us_per_layer: float,
        allreduce_hop_us: float,
    ) -> None:
        check_number("cost.launch_us_per_layer", launch_us_per_layer, 0.0, 1e9)
        check_number("cost.allreduce_hop_us", allreduce_hop_us, 0.0, 1e9)
        gpus, layers = hardware.tensor_parallel, model.num_layers
        read_ns = NS_PER_S / (hardware.memory_bandwidth * efficiency.gemm_memory)
        flop_ns = NS_PER_S / (hardware.peak_flops * efficiency.gemm_compute)
        kv_byte_ns = NS_PER_S / (hardware.memory_bandwidth * efficiency.attention_memory)
        # Data sheets add both directions of a link; a ring sends and receives at once.
        link_byte_ns = NS_PER_S / (hardware.interconnect_bandwidth / 2 * efficiency.interconnect)

        layer_weights = layers * model.layer_parameters / gpus
        head_weights = model.head_parameters / gpus
        self._layers_read_ns = layer_weights * model.dtype_bytes * read_ns
        self._layers_token_ns = layer_weights * 2 * flop_ns
        self._head_read_ns = head_weights * model.dtype_bytes * read_ns
        self._head_token_ns = head_weights * 2 * flop_ns
        self._kv_token_ns = model.kv_bytes_per_gpu(gpus) * kv_byte_ns
        self._pair_ns = 4 * layers * model.num_heads * model.head_dim / gpus * flop_ns

        hops = 2 * (gpus - 1)
        self._reduce_token_ns = 2 * layers * hops / gpus * model.hidden_size * model.dtype_bytes * link_byte_ns
        self._step_ns = layers * (launch_us_per_layer + 2 * hops * allreduce_hop_us) * US
        self._host = host
        self._decodes: dict[tuple[int, int], tuple[float, float, float]] = {}

    def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
        """[repeats] ns. In each repeat of a decode-only plan every row is one token longer.

        Raises:
            InvariantError: more than one repeat of a plan with prefill rows.
        """
        rows = len(plan.seq_ids)
        if plan.num_decodes == rows:
            key = (rows, plan.idle_rows)
            terms = self._decodes.get(key) or self._decodes.setdefault(key, self._terms(rows, rows, *key))
        elif repeats == 1:
            terms = self._prefill_terms(plan, rows)
        else:
            raise InvariantError("INV-fast-forward", f"step {plan.step} has prefill rows and {repeats} repeats")
        fixed, context_ns, host = terms
        if repeats == 1:
            return np.array([round(max(plan.context_tokens * context_ns + fixed, host))])
        first, growth = plan.context_tokens, rows or 1
        durations = np.arange(first, first + growth * repeats, growth) * context_ns + fixed
        if first * context_ns + fixed < host:  # steps only get longer: otherwise the host never matters
            np.maximum(durations, host, out=durations)
        whole: IntArray = np.rint(durations, out=durations).astype(np.int64)
        return whole

    def _terms(self, tokens: int, samples: int, rows: int, idle_rows: int) -> tuple[float, float, float]:
        """(ns without reading the context, ns a token of context, ns of an overlapping host) of a step.

        Idle rows are decoded like the others, each at the mean context of the rows.
        """
        tokens, samples, sequences = tokens + idle_rows, samples + idle_rows, rows + idle_rows
        device = max(self._layers_read_ns, self._layers_token_ns * tokens)
        if samples:
            device += max(self._head_read_ns, self._head_token_ns * samples)
        device += self._step_ns + tokens * (self._kv_token_ns + self._reduce_token_ns)
        host = (self._host.fixed_us + self._host.per_sequence_us * sequences) * US
        context_ns = self._kv_token_ns * (sequences / (rows or 1))
        return (device, context_ns, host) if self._host.overlap else (device + host, context_ns, 0.0)

    def _prefill_terms(self, plan: StepPlan, rows: int) -> tuple[float, float, float]:
        """Terms of a plan with prefill rows. Padding attends as the tokens it stands beside do on average."""
        tokens = plan.total_tokens + plan.padding_tokens
        samples = int(np.count_nonzero(plan.num_samples))
        fixed, context_ns, host = self._terms(tokens, samples, rows, plan.idle_rows)
        pairs = 0
        for row in (plan.num_tokens > 1).nonzero()[0].tolist():
            new = int(plan.num_tokens[row])
            pairs += new * int(plan.context_lens[row]) - new * (new - 1) // 2
        return fixed + self._pair_ns * pairs * (tokens / plan.total_tokens), context_ns, host
