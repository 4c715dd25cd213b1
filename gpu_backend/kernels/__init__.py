"""Triton kernels, one a file: legend, kernel, launcher, plain-torch reference."""
