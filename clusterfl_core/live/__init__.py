"""Laboratories that run in the page, and the runs of the same kind in Python."""

__all__ = []
