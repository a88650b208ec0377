"""Run an experiment's notebook, once a seed; `house.py results` calls this.

Usage: run_experiment.py NOTEBOOK SEED... PARAMETER=VALUE...
"""

import logging
import sys
from pathlib import Path

import house
import papermill
from nbclient.exceptions import DeadKernelError


class Progress:
    """Pass on the lines that the experiment's store prints, as they come, and no others."""

    def __init__(self, experiment: str):
        self.begin, self.line = f"{experiment} ", ""

    def write(self, text: str) -> None:
        """Take some text, which may end in the middle of a line."""
        *lines, self.line = (self.line + text).split("\n")
        for line in lines:
            if line.startswith(self.begin):
                print(f"    {line.removeprefix(self.begin)}", flush=True)

    def flush(self) -> None:
        """Do nothing: whole lines are out already."""


def check(notebook: Path, names: list[str]) -> None:
    """Stop with one sentence if the notebook does not have what it is asked for."""
    known = papermill.inspect_notebook(notebook)
    for name in names:
        if name not in known:
            sys.exit(f"{notebook.stem} has no parameter {name!r} in its cell tagged `parameters`.")


def run(notebook: Path, parameters: dict) -> None:
    """Run the notebook with one seed; the executed copy goes to _build/results."""
    copy = notebook.parents[2] / "_build" / "results"
    copy.mkdir(parents=True, exist_ok=True)
    seed = parameters["seed"]
    copy /= f"{notebook.stem}-{parameters['preset']}-seed{seed}.ipynb"
    why = ""
    try:
        papermill.execute_notebook(
            notebook,
            copy,
            parameters,
            kernel_name="python3",
            start_timeout=300,
            extra_arguments=["--IPKernelApp.log_level=50"],  # the same for its process
            progress_bar=False,
            stdout_file=Progress(notebook.stem),
            cwd=notebook.parent,
        )
    except papermill.PapermillExecutionError as error:
        why = f"{error.ename}: {error.evalue}"
    except DeadKernelError:
        why = "the notebook's process died, for want of memory perhaps"
    if why:
        sys.exit(
            f"Failed with seed {seed}: {why}\nWhat is stored is kept; the notebook so far is {copy}"
        )


def main(notebook: str, *words: str) -> None:
    """Check, then run seed after seed."""
    path = Path(notebook).resolve()
    seeds = [int(word) for word in words if "=" not in word]
    given = dict(word.split("=", 1) for word in words if "=" in word)
    parameters = {name: int(v) if v.isdecimal() else v for name, v in given.items()}
    check(path, ["seed", *parameters])
    try:
        for seed in seeds:
            with house.step(f"{path.stem}, preset {given['preset']}, seed {seed}"):
                run(path, parameters | {"seed": seed})
    except KeyboardInterrupt:
        sys.exit("Stopped; what is stored is kept, and the same command goes on from there.")


if __name__ == "__main__":
    logging.disable()  # what goes wrong is said above, in a sentence
    main(*sys.argv[1:])
