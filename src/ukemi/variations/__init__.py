"""Variations: what genes do to pixels."""

from ukemi.variations.warp import check_kernels, vary

__all__ = ["check_kernels", "vary"]
