"""Code as a tree, read by one thread at a time."""

import ast
import threading

alone = threading.Lock()


def tree(source: str) -> ast.Module:
    """Return what `ast.parse` makes of code; raises SyntaxError and its kin.

    Python before 3.11.8 counts the depth of all threads' trees together, and fails on sound code
    where two threads make one at a time.
    """
    with alone:
        return ast.parse(source)
