"""The version of the package, once.

>>> isinstance(__version__, str)
True
"""

__all__ = ["__version__"]

__version__ = "0.2.0"
