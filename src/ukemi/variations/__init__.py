"""Variations: what genes do to pixels."""

from ukemi.variations.warp import vary

__all__ = ["vary"]
