"""Drawing tokens from logits. Legend: S samples, V vocabulary, k best."""

from __future__ import annotations

import torch
from torch import Tensor

from kvsim.checks import check_number


class Sampler:
    """The most likely token at temperature 0, else a draw from ``softmax(logits / temperature)``.

    Reads nothing back to the host, so it may run inside a CUDA graph, which then has to register `generator`.

    Raises:
        ConfigError: the temperature is not a number from 0 to 100.
    """

    def __init__(self, temperature: float = 0.0, *, seed: int = 0, device: torch.device) -> None:
        self.temperature = check_number("temperature", temperature, 0.0, 100.0)
        self.generator = torch.Generator(device).manual_seed(seed)

    def sample(self, logits_SV: Tensor) -> Tensor:
        """[S] int64 token of each row."""
        if self.temperature == 0.0:
            return logits_SV.argmax(dim=-1)
        # Gumbel-max: the largest of logit - log(Exp(1)) is a draw from the softmax
        noise_SV = torch.empty_like(logits_SV, dtype=torch.float32).exponential_(generator=self.generator).log_()
        return (logits_SV.float() / self.temperature - noise_SV).argmax(dim=-1)


def log_probs(logits_SV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` most likely tokens of each row, best first: log-probabilities [S, k] float32 and ids [S, k] int64."""
    values_SV = torch.log_softmax(logits_SV.float(), dim=-1)
    values_Sk, ids_Sk = values_SV.topk(k, dim=-1)
    return values_Sk, ids_Sk
