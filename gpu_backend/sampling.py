"""Drawing tokens from logits. Legend: S samples, V vocabulary, k best."""

from __future__ import annotations

import torch
from torch import Tensor

from kvsim.streams import SEED_LIMIT, stream


class Sampler:
    """The most likely token at temperature 0, else a draw from ``softmax(logits / temperature)``.

    Draws from the stream ``sampling`` of `seed`. Reads nothing back to the host, so it may run inside a CUDA graph,
    which then has to register `generator`.
    """

    def __init__(self, temperature: float = 0.0, *, seed: int = 0, device: torch.device) -> None:
        self.temperature = temperature
        self.generator = torch.Generator(device)
        self._seed = int(stream(seed, "sampling").integers(SEED_LIMIT))
        self.reset()

    def reset(self) -> None:
        """Begin with the first number again."""
        self.generator.manual_seed(self._seed)

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
