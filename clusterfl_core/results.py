"""Results of long experiments: computed once, stored, shown by every reader.

An experiment is a notebook of its own that asks a :class:`Store` for its values. With the preset
``"quick"`` they are computed on the spot and nothing is written. With ``"paper"`` they are read
where they are stored, else computed and stored, so that a killed series goes on with the first
missing run. :func:`stored` gives the records that are there, for tables and figures of any page.

The records lie in the first of these that there is: the folder ``$CLUSTERFL_RESULTS``; in a
checkout of the book, the folder that its pyproject.toml ships as ``clusterfl_core.stored``;
elsewhere ``results`` in the working folder, where new ones go, with the installed package's own
copy beside it.

>>> import clusterfl_core as cf
>>> store = cf.results.Store("06_table1", preset="quick")
>>> store.run(0, {"m": 8, "k": 4}, lambda checkpoint: {"accuracy": [0.25, 0.5]})
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
import tomllib
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock

from clusterfl_core import check
from clusterfl_core.files import write_whole
from clusterfl_core.version import __version__

__all__ = ["Store", "folders", "interval", "stored", "table"]

PRESETS = ("quick", "paper")
PACKAGE = Path(__file__).resolve().parent
SHIPPED = "clusterfl_core.stored"  # the package of records
NOT_JSON = "not a JSON number"  # {"not a JSON number": "nan"} stands for NaN, which JSON lacks
# With the folder of the records before it a path has at most 100 characters: it fits any system.
LONGEST_NAME, LONGEST_WORDS = 30, 40


class Store:
    """The stored runs of one experiment.

    ``experiment`` is the notebook's name without its ending: at most 30 letters, digits and
    underscores. ``preset`` "quick" computes and writes nothing; "paper" reads what is stored and
    stores the rest.
    """

    def __init__(self, experiment, preset="quick"):
        _check_name(experiment)
        if not isinstance(preset, str) or preset not in PRESETS:
            raise ValueError(f'preset must be "quick" or "paper", got {check.shown(preset)}')
        self.experiment, self.preset = experiment, preset

    def run(self, seed, settings, compute, *, data=""):
        """Give the values of one run: read them where they are stored, else compute them.

        Parameters
        ----------
        seed : int
            Kept in the record; ``compute`` has to use it.
        settings : dict
            What tells this run from the others of the experiment, seed and data apart. A file
            holds the runs of all seeds with the same settings, and its name begins with the first
            of them.
        compute : callable
            ``compute(checkpoint)`` returns the values, a dict. ``checkpoint`` is a path that
            it may hand to :func:`clusterfl_core.run` so that a killed run goes on in its middle;
            None with the preset "quick". The file is removed once the record is written.
        data : str
            A few words on the data used, kept in the record.

        Returns
        -------
        dict
            The values, the same whether computed or read: dicts, lists, strings, numbers, True,
            False and None. Tuples come back as lists, arrays and tensors as numbers or lists.

        Raises
        ------
        TypeError
            If settings or values hold anything else, or a key that is not a string.
        ValueError
            If an argument is out of bounds, or the file is damaged or names other data.
        OSError
            If the run is not stored and the folder cannot be written.
        """
        seed = check.whole("seed", seed, 0)
        if not isinstance(data, str):
            raise ValueError(f"data must be a few words on the data used, got {check.shown(data)}")
        settings = _plain(settings, "settings")
        if self.preset == "quick":
            check.function("compute", compute)
            return _plain(compute(None), "values")

        head = {"experiment": self.experiment, "settings": settings, "data": data}
        name = _file_name(settings)
        said = f"{self.experiment} {name}, seed {seed}"
        places = [_find(folder / self.experiment, name) for folder in folders()]
        for path in places:
            if seed in (runs := _runs(path, head)):
                print(f"{said}: already stored", flush=True)
                _tidy(places[0].parent / ".unfinished", f"{name}-seed{seed}")
                return runs[seed]["values"]

        check.function("compute", compute)
        path = places[0]
        unfinished = path.parent / ".unfinished"
        _make(unfinished)
        checkpoint = unfinished / f"{name}-seed{seed}.pt"
        resumed = checkpoint.exists()
        commit = _commit(self.experiment)
        print(f"{said}: {'goes on' if resumed else 'starts'}", flush=True)
        start = time.perf_counter()
        values = _plain(compute(checkpoint), "values")
        seconds = round(time.perf_counter() - start, 3)
        record = {"seed": seed, "values": values, "versions": _versions(), "device": _device()}
        record |= {"seconds": seconds, "resumed": resumed, "commit": commit}
        record["date"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
        with FileLock(unfinished / "lock"):  # of a process that is killed the system takes it away
            runs = {seed: record} | _runs(path, head)  # what others stored meanwhile stays
            whole = unfinished / f"{name}-seed{seed}.json"  # what a kill leaves stays in there
            write_whole(whole, lambda file: file.write(_text(head, runs).encode()))
            whole.replace(path)
        _tidy(unfinished, f"{name}-seed{seed}")
        print(f"{said}: stored after {seconds:.1f} s", flush=True)
        return runs[seed]["values"]


def stored(experiment, /, **settings):
    """Give the stored records of an experiment, those whose settings have these values.

    A list of dict, sorted by settings, then seed, numbers by their size; empty if nothing is
    stored. A record has ``experiment``, ``settings``, ``data``, ``seed``, ``values``, ``versions``
    (of Python, torch, numpy, clusterfl_core), ``device`` (the GPU, or the CPU with its cores and
    threads), ``seconds`` (wall time of the computation; of its last part if ``resumed`` from a
    checkpoint), ``commit`` (of the repository, with "+changed" if the library or the notebook
    differed from it; "" if unknown), ``date``. ValueError if the name has other characters, no
    record has a setting of that name, or a file does not hold records.
    """
    _check_name(experiment)
    found = {}  # by settings and seed; the first folder's count
    for folder in folders():
        for path in sorted((folder / experiment).glob("*.json")):
            head, runs = _read(path)
            for seed, record in runs.items():
                key = _json(head["settings"], ordered=True), seed
                found.setdefault(key, head | record)
    records, absent = list(found.values()), object()
    for key, value in settings.items():
        if found and not any(key in record["settings"] for record in found.values()):
            raise ValueError(f"{experiment} has no setting {key!r}")
        records = [r for r in records if r["settings"].get(key, absent) == value]
    return sorted(records, key=_order)


def folders():
    """Where records lie: new ones go to the first folder, and all are read, earlier ones first."""
    if os.environ.get("CLUSTERFL_RESULTS"):
        return [Path(os.environ["CLUSTERFL_RESULTS"])]
    here = Path.cwd()
    if checkout := _checkout(here):
        return [checkout]
    copy = PACKAGE / SHIPPED.split(".")[1]
    own = copy if copy.is_dir() else _checkout(PACKAGE)  # or installed as editable
    return [here / "results", *([own] if own else [])]


def _checkout(place, shipped=SHIPPED):
    """The folder that the checkout around a place ships under this name, None if there is none."""
    for folder in (place, *place.parents):
        try:
            project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
            return folder / project["tool"]["setuptools"]["package-dir"][shipped]
        except (OSError, ValueError, KeyError, TypeError):  # none here, or of another project
            continue
    return None


def _make(path):
    """Make the folder of unfinished work, before anything is computed, or say what to do."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "try").touch()
    except OSError as error:
        advice = "set CLUSTERFL_RESULTS to a folder for new records"
        raise OSError(f"{path.parent} cannot be written ({error.strerror}): {advice}") from error
    (path / "try").unlink(missing_ok=True)


def _tidy(unfinished, name):
    """Remove what is left of a run that is stored; a kill may have come before."""
    rests = list(unfinished.glob(f"{name}.*"))
    if rests:
        with contextlib.suppress(OSError), FileLock(unfinished / "lock"):
            for rest in rests:
                rest.unlink(missing_ok=True)


# ---------------------------------------------------------------- what pages show of them


def interval(values):
    """The mean of some seeds' values, and half the width of a 95 % interval for it (Student's t).

    ``values`` [n], n at least 2. For the difference of two methods give the differences, seed by
    seed: they share the luck of a seed.

    >>> "%.1f ± %.1f" % interval([1, 2, 3])
    '2.0 ± 2.5'
    """
    from scipy.stats import t  # slow to import

    values = check.array("values", values, None)
    if len(values) < 2:
        raise ValueError(f"values must be two numbers at least, got {values.tolist()}")
    error = values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean()), float(t.ppf(0.975, len(values) - 1) * error)


def table(rows, columns, show):
    """A Markdown table: the cell of a row and a column is ``show(row, column)``.

    >>> print(table([2, 3], [10, 100], lambda a, b: a * b))
    |  | 10 | 100 |
    |---|--:|--:|
    | **2** | 20 | 200 |
    | **3** | 30 | 300 |
    """
    rows, columns = check.items("rows", rows, 0), check.items("columns", columns, 0)
    check.function("show", show)
    lines = ["".join(f"| {word} " for word in ["", *columns]) + "|"]
    lines.append("|---" + "|--:" * len(columns) + "|")
    for row in rows:
        cells = "".join(f" {show(row, column)} |" for column in columns)
        lines.append(f"| **{row}** |{cells}")
    return "\n".join(lines)


# ---------------------------------------------------------------- names and order


def _check_name(name):
    if not isinstance(name, str) or not re.fullmatch(rf"\w{{1,{LONGEST_NAME}}}", name, re.ASCII):
        raise ValueError(
            f"experiment must be at most {LONGEST_NAME} letters, digits and underscores, "
            f"got {check.shown(name)}"
        )


def _words(settings):
    return [f"{k}{f'_{v}' if isinstance(v, str) else _json(v)}" for k, v in settings.items()]


def _file_name(settings):
    """The first settings in words, and a code that stands for them all in any order."""
    words = "-".join(re.sub(r"[^A-Za-z0-9.+-]+", "_", word) for word in _words(settings))
    code = hashlib.sha256(_json(settings, ordered=True).encode()).hexdigest()[:8]
    return f"{words[:LONGEST_WORDS]}-{code}".lstrip("-")


def _find(folder, name):
    """The file of these settings, in whatever order its name has them."""
    code = name.split("-")[-1]
    return next(iter(sorted(folder.glob(f"*{code}.json"))), folder / f"{name}.json")


def _order(record):
    """Sort key: text as text, numbers by their size."""
    words = "-".join(_words(dict(sorted(record["settings"].items()))))
    parts = re.split(r"(\d+(?:\.\d+)?)", words)
    return [float(part) if i % 2 else part for i, part in enumerate(parts)], record["seed"]


# ---------------------------------------------------------------- files


def _plain(value, where):
    """The value as JSON can hold it; whatever is lost in that is refused."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a key of {where} must be a string, got {check.shown(key)}")
        return {key: _plain(value[key], f"{where}[{key!r}]") for key in value}
    if where in ("settings", "values"):
        raise TypeError(f"{where} must be a dict, got {check.shown(value)}")
    if isinstance(value, (list, tuple)):
        return [_plain(one, f"{where}[{i}]") for i, one in enumerate(value)]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(
        f"{where} must be a number, a string, True, False, None, a list or a dict of these, "
        f"got {check.shown(value)}"
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


def _text(head, runs):
    """One line a seed, all ending alike: a merge that keeps the lines of both sides is right."""
    lines = [f"{_json(runs[seed])},\n" for seed in sorted(runs)]
    return f'{_json(head)[:-1]}, "runs": [\n{"".join(lines)}null]}}\n'


def _read(path):
    """What a file says of all its runs, and its runs by seed."""

    def decode(found):
        return float(found[NOT_JSON]) if found.keys() == {NOT_JSON} else found

    try:
        head = json.loads(path.read_text(encoding="utf-8"), object_hook=decode)
        lines = head.pop("runs")
        whole = head.keys() == {"experiment", "settings", "data"} and lines.pop() is None
        runs = {record["seed"]: record for record in lines}
        whole = whole and all("values" in record for record in lines)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        whole = False
    if not whole:
        raise ValueError(
            f"{path} does not hold stored runs: restore it, or remove it and run again"
        )
    for record in lines:  # a merge may repeat a line, which does no harm
        if _json(runs[record["seed"]]) != _json(record):
            raise ValueError(f"{path} holds seed {record['seed']} twice: keep one of its lines")
    return head, runs


def _runs(path, asked):
    """The runs of a file by seed, none if it is not there; refused if they are other ones."""
    if not path.exists():
        return {}
    head, runs = _read(path)
    for key, value in asked.items():
        if _json(head[key], ordered=True) != _json(value, ordered=True):
            raise ValueError(
                f"{path} holds {key} {head[key]!r}, not {value!r}: name one of the two "
                "differently, or remove the file"
            )
    return runs


# ---------------------------------------------------------------- where and with what


def _versions():
    found = {"python": platform.python_version(), "torch": torch.__version__}
    return found | {"numpy": np.__version__, "clusterfl_core": __version__}


def _device():
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.get_device_name()
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = re.search(r"^model name\s*: (.*)", facts, re.MULTILINE)[1]
    except (OSError, TypeError):  # not Linux, or a processor that has no name there
        model = platform.processor() or platform.machine()
    return f"{model}, cores: {os.cpu_count()}, threads: {torch.get_num_threads()}"


def _commit(experiment):
    """The repository's commit, with "+changed" if library or notebook differ from it; or ""."""
    try:
        _git("ls-files", "--error-unmatch", "--", "__init__.py")  # its own, not one around it
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", ".", f":(top,glob)**/{experiment}.ipynb")
    except (OSError, subprocess.SubprocessError):  # no git here, or no commit yet
        return ""
    return head + "+changed" * bool(changed)


def _git(*words):
    command = ["git", "-C", str(PACKAGE), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()
