"""Files that are written whole or not at all, so that a kill leaves no half of one.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     write_whole(Path(folder) / "new" / "file", lambda file: file.write(b"all of it"))
...     (Path(folder) / "new" / "file").read_bytes()
b'all of it'
"""

import os
import tempfile
from pathlib import Path

from clusterfl_core.check import function, kind

__all__ = ["write_whole"]


def write_whole(path, write):
    """Write a file whole or not at all: ``write(file)`` fills a temporary one, then it moves.

    ``path`` is where it goes; folders are made. ``write`` takes an open binary file. OSError names
    the path.
    """
    path, write = Path(kind("path", path, str, os.PathLike)), function("write", write)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:  # a full disk does not say which
        if error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror or str(error), str(path)) from error
