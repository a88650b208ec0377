"""The laboratories, each a module here and its script NAME.js beside it."""

__all__ = []
