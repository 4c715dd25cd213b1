"""Triton kernels, one a file: legend, kernel, launcher, plain-torch reference."""

import gpu_backend.device  # noqa: F401  # first: it decides how kernels run
