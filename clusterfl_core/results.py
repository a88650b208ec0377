"""Results of long runs: computed once, stored as one JSON file a run, shown by every reader.

A chapter asks a :class:`Store` for the values of an experiment. With the preset ``"quick"`` they
are computed on the spot and nothing is written. With ``"paper"`` they are read where they are
stored, else computed and stored, so that a killed series goes on with the first missing record.
:func:`stored` gives the records that are there, for tables and figures, whatever the preset.

Examples
--------
>>> import clusterfl_core as cf
>>> store = cf.results.Store("06_ifca_experiments", preset="quick")
>>> store.run("table1", 0, {"m": 8, "k": 4}, lambda checkpoint: {"accuracy": [0.25, 0.5]})
{'accuracy': [0.25, 0.5]}
"""

import contextlib
import datetime
import hashlib
import json
import math
import os
import platform
import re
import subprocess
import time
from numbers import Integral
from pathlib import Path

import numpy as np
import torch

from clusterfl_core.files import write_whole

PRESETS = ("quick", "paper")
PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
NOT_JSON = "not a JSON number"  # {"not a JSON number": "nan"} stands for NaN, which JSON lacks
LONGEST = 120  # of a file's name, well within what any system takes


class Store:
    """The stored runs of one chapter.

    Parameters
    ----------
    chapter : str
        The notebook's name without its ending: letters, digits and underscores.
    preset : {"quick", "paper"}
        "quick" computes and writes nothing; "paper" reads what is stored and stores the rest.
    only : str
        With "paper", the one experiment to run; "" for all of them.

    Raises
    ------
    ValueError
        If an argument is none of these.
    """

    def __init__(self, chapter, preset="quick", only=""):
        _check_name("chapter", chapter)
        if preset not in PRESETS:
            raise ValueError(f'preset must be "quick" or "paper", got {preset!r}')
        if only:
            _check_name("only", only)
        self.chapter, self.preset, self.only = chapter, preset, only

    def wants(self, experiment):
        """Whether :meth:`run` gives values of this experiment; False if ``only`` names another."""
        _check_name("experiment", experiment)
        return self.preset == "quick" or self.only in ("", experiment)

    def run(self, experiment, seed, settings, compute, *, data=""):
        """Give the values of one run: read them where they are stored, else compute them.

        Parameters
        ----------
        experiment : str
            Its name in the chapter, such as "table1": letters, digits and underscores.
        seed : int
            Kept in the record; ``compute`` has to use it.
        settings : dict
            What tells this run from the others of the experiment, seed and data apart.
        compute : callable
            ``compute(checkpoint)`` returns the values, a dict. ``checkpoint`` is a path that
            it may hand to :func:`clusterfl_core.run` so that a killed run goes on in its middle;
            None with the preset "quick". The file is removed once the record is written.
        data : str
            A few words on the data used, kept in the record.

        Returns
        -------
        dict or None
            The values, the same whether computed or read: dicts, lists, strings, numbers, True,
            False and None. Tuples come back as lists, arrays and tensors as numbers or lists.
            None if ``only`` names another experiment.

        Raises
        ------
        TypeError
            If settings or values hold anything else, or a key that is not a string.
        ValueError
            If an argument is out of bounds, the record's file is damaged, or it holds other
            settings or data.
        OSError
            If the record is missing and the folder cannot be written.
        """
        if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seed must be a whole number, not negative, got {seed!r}")
        if not self.wants(experiment):
            return None
        if not isinstance(data, str):
            raise ValueError(f"data must be a few words on the data used, got {data!r}")
        what = {"chapter": self.chapter, "experiment": experiment, "preset": self.preset}
        what |= {"seed": int(seed), "settings": _plain(settings, "settings"), "data": data}
        if self.preset == "quick":
            return _plain(compute(None), "values")

        name = _file_name(experiment, what["settings"], seed)
        path = folder() / self.chapter / f"{name}.json"
        said = f"{self.chapter} {name}"
        if path.exists():
            found = _read(path)
            _check_same(found, what, path)
            print(f"{said}: already stored", flush=True)
            return found["values"]

        unfinished = path.parent / ".unfinished"
        _make(unfinished)
        checkpoint = unfinished / f"{name}.pt"
        resumed = checkpoint.exists()
        commit = _commit(self.chapter)
        print(f"{said}: {'goes on' if resumed else 'starts'}", flush=True)
        start = time.perf_counter()
        values = _plain(compute(checkpoint), "values")
        seconds = round(time.perf_counter() - start, 3)
        record = what | {
            "values": values,
            "versions": _versions(),
            "device": _device(),
            "seconds": seconds,
            "resumed": resumed,
            "commit": commit,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        }
        whole = unfinished / f"{name}.record"  # what a kill leaves behind stays in this folder
        write_whole(whole, lambda file: file.write(_text(record).encode()))
        whole.replace(path)
        for rest in unfinished.glob(f"{name}.*"):
            rest.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there is more in it
            unfinished.rmdir()
        print(f"{said}: stored after {seconds:.1f} s", flush=True)
        return values


def stored(chapter, experiment):
    """Give the stored records of an experiment.

    Parameters
    ----------
    chapter, experiment : str
        As in :class:`Store`.

    Returns
    -------
    list of dict
        Sorted by settings, then seed, numbers by their size; empty if nothing is stored. A record
        has ``chapter``, ``experiment``, ``preset``, ``seed``, ``settings``, ``data``, ``values``,
        ``versions`` (of Python, torch, numpy, clusterfl_core), ``device`` (the GPU, or the CPU with
        its cores and threads), ``seconds`` (wall time of the computation; of its last part if
        ``resumed`` from a checkpoint), ``commit`` (of the repository, with "+changed" if the
        library or the chapter differed from it; "" if unknown), ``date``.

    Raises
    ------
    ValueError
        If a name has other characters, or a file is not a record.
    """
    _check_name("chapter", chapter)
    _check_name("experiment", experiment)
    files = (folder() / chapter).glob(f"{experiment}-*.json")
    return [_read(path) for path in sorted(files, key=_by_size)]


def folder():
    """Where the records lie.

    ``$CLUSTERFL_RESULTS`` if it is set, else ``book/results`` of the repository that this package
    is part of, else the copy inside the installed package, which can only be read.
    """
    if os.environ.get("CLUSTERFL_RESULTS"):
        return Path(os.environ["CLUSTERFL_RESULTS"])
    return ROOT / "book" / "results" if _in_repository() else _installed()


def _in_repository():
    return (ROOT / "pyproject.toml").exists() and (ROOT / "book").is_dir()


def _installed():
    return PACKAGE / "stored"


def _make(path):
    """Make the folder of unfinished work, before anything is computed, or say what to do."""
    advice = "set CLUSTERFL_RESULTS to a folder for new records"
    if _installed() in path.parents:
        raise OSError(f"the installed package does not write into itself: {advice}")
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / "try", lambda file: None)
    except OSError as error:
        raise OSError(f"{path.parent} cannot be written ({error.strerror}): {advice}") from error
    (path / "try").unlink(missing_ok=True)


# ---------------------------------------------------------------- names


def _check_name(argument, name):
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise ValueError(f"{argument} must be letters, digits and underscores, got {name!r}")


def _file_name(experiment, settings, seed):
    words = [f"{key}{_short(value)}" for key, value in sorted(settings.items())]
    words = "-".join([experiment, *(re.sub(r"[^A-Za-z0-9.+-]+", "_", word) for word in words)])
    if len(words) > LONGEST:
        code = hashlib.sha256(_json(settings, ordered=True).encode()).hexdigest()[:8]
        words = f"{words[: LONGEST - 9]}-{code}"
    return f"{words}-seed{seed}"


def _short(value):
    return f"_{value}" if isinstance(value, str) else _json(value)


def _by_size(path):
    """Sort key of a file's name: text as text, numbers by their size."""
    parts = re.split(r"(\d+(?:\.\d+)?)", path.stem)
    return [float(part) if i % 2 else part for i, part in enumerate(parts)]


# ---------------------------------------------------------------- records


def _plain(value, where):
    """The value as JSON can hold it; whatever is lost in that is refused."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a key of {where} must be a string, got {key!r}")
        return {key: _plain(value[key], f"{where}[{key!r}]") for key in value}
    if where in ("settings", "values"):
        raise TypeError(f"{where} must be a dict, got {value!r}")
    if isinstance(value, (list, tuple)):
        return [_plain(one, f"{where}[{i}]") for i, one in enumerate(value)]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(
        f"{where} must be a number, a string, True, False, None, a list or a dict of these, "
        f"got {value!r}"
    )


def _json(value, ordered=False):
    """JSON text; `ordered` makes it the same whatever the order of the keys."""

    def encode(value):
        if isinstance(value, float) and not math.isfinite(value):
            return {NOT_JSON: str(value)}
        if isinstance(value, dict):
            return {key: encode(one) for key, one in value.items()}
        return [encode(one) for one in value] if isinstance(value, list) else value

    return json.dumps(encode(value), allow_nan=False, ensure_ascii=False, sort_keys=ordered)


def _text(record):
    """One line a field: short files that are still easy to read and to compare."""
    lines = [f" {_json(key)}: {_json(value)}" for key, value in record.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _read(path):
    def decode(found):
        return float(found[NOT_JSON]) if found.keys() == {NOT_JSON} else found

    try:
        record = json.loads(path.read_text(encoding="utf-8"), object_hook=decode)
        record["settings"], record["seed"], record["values"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a stored record: remove it and run again") from error
    return record


def _check_same(found, asked, path):
    for key in ("chapter", "experiment", "seed", "settings", "data"):
        if _json(found.get(key), ordered=True) != _json(asked[key], ordered=True):
            raise ValueError(
                f"{path} holds {key} {found.get(key)!r}, not {asked[key]!r}: name one of the "
                "two differently, or remove the file"
            )


# ---------------------------------------------------------------- where and with what


def _versions():
    import clusterfl_core

    packages = {"torch": torch, "numpy": np, "clusterfl_core": clusterfl_core}
    found = {name: package.__version__ for name, package in packages.items()}
    return {"python": platform.python_version()} | found


def _device():
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.get_device_name()
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = re.search(r"^model name\s*: (.*)", facts, re.MULTILINE)[1]
    except (OSError, TypeError):  # not Linux, or a processor that has no name there
        model = platform.processor() or platform.machine()
    return f"{model}, cores: {os.cpu_count()}, threads: {torch.get_num_threads()}"


def _commit(chapter):
    """The repository's commit, with "+changed" if library or chapter differ from it; or ""."""
    if not (_in_repository() and (ROOT / ".git").exists()):
        return ""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", "clusterfl_core", f"book/{chapter}.ipynb")
    except (OSError, subprocess.SubprocessError):  # no git here, or no commit yet
        return ""
    return head + "+changed" * bool(changed)


def _git(*words):
    command = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()
