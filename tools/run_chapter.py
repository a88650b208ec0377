"""Run a chapter from its first cell to its last, once a seed; `house.py results` calls this.

Usage: run_chapter.py NOTEBOOK PRESET ONLY SEED...
"""

import logging
import re
import sys
from pathlib import Path

import house
import nbformat
import papermill
from nbclient.exceptions import DeadKernelError


class Progress:
    """Pass on the lines that the chapter's store prints, as they come, and no others."""

    def __init__(self, chapter: str):
        self.begin, self.line = f"{chapter} ", ""
        self.last = ""  # of the lines passed on

    def write(self, text: str) -> None:
        """Take some text, which may end in the middle of a line."""
        *lines, self.line = (self.line + text).split("\n")
        for line in lines:
            if line.startswith(self.begin):
                self.last = line.removeprefix(self.begin)
                print(f"    {self.last}", flush=True)

    def flush(self) -> None:
        """Do nothing: whole lines are out already."""


def check(notebook: Path, only: str) -> None:
    """Stop with one sentence if the chapter does not have what it is asked for."""
    known = papermill.inspect_notebook(notebook)
    for name in ["preset", "seed"] + ["only"] * bool(only):
        if name not in known:
            sys.exit(f"{notebook.stem} has no parameter {name!r}: it stores no such runs.")
    cells = nbformat.read(notebook, 4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    if only and not named(only, code):
        sys.exit(f"{notebook.stem} has no experiment {only!r}: no cell names it.")


def named(only: str, code: str) -> bool:
    """Whether the code names the experiment."""
    return bool(re.search(rf"""(["']){re.escape(only)}\1""", code))


def of_experiment(copy: Path, only: str):
    """The first error of a cell that is to store the experiment, None if there is none."""
    for cell in nbformat.read(copy, 4).cells:
        if cell.cell_type == "code" and "store." in cell.source and named(only, cell.source):
            for output in cell.outputs:
                if output.output_type == "error":
                    return output
    return None


def run(notebook: Path, preset: str, only: str, seed: int) -> None:
    """Run the chapter with one seed; the executed copy goes to _build/results.

    What the page claims of its own seed may fail with another, and a page that ran one experiment
    may miss the runs of the others, in cells before and after: that is said, and stops nothing.
    """
    progress = Progress(notebook.stem)
    copy = notebook.parents[1] / "_build" / "results"
    copy.mkdir(parents=True, exist_ok=True)
    copy /= "-".join(filter(None, [notebook.stem, only, preset, f"seed{seed}.ipynb"]))
    try:
        papermill.execute_notebook(
            notebook,
            copy,
            {"preset": preset, "seed": seed} | ({"only": only} if only else {}),
            kernel_name="python3",
            start_timeout=300,
            allow_error_names=["AssertionError"],
            allow_errors=bool(only),
            extra_arguments=["--IPKernelApp.log_level=50"],  # the same for its process
            progress_bar=False,
            stdout_file=progress,
            cwd=notebook.parent,
        )
    except papermill.PapermillExecutionError as error:  # of the last cell that failed
        stored = only and " stored" in progress.last  # "stored after …" or "already stored"
        failed = not stored and only and of_experiment(copy, only)
        if error.ename == "AssertionError" and not failed:
            print(f"    a claim of the page fails with this seed, see {copy}", flush=True)
        elif stored:
            why = f"{error.ename}: {error.evalue}"
            print(f"    stored, but the rest of the page fails ({why}), see {copy}", flush=True)
        else:
            error = failed or error
            sys.exit(
                f"Failed with seed {seed}: {error.ename}: {error.evalue}\n"
                f"What is stored is kept; the page so far is {copy}"
            )
    except DeadKernelError:
        sys.exit(
            f"Failed with seed {seed}: the notebook's process died, for want of memory perhaps\n"
            f"What is stored is kept; the page so far is {copy}"
        )


def main(notebook: str, preset: str, only: str, *seeds: str) -> None:
    """Check, then run seed after seed."""
    path = Path(notebook).resolve()
    check(path, only)
    try:
        for seed in map(int, seeds):
            with house.step(f"{path.stem}, preset {preset}, seed {seed}"):
                run(path, preset, only, seed)
    except KeyboardInterrupt:
        sys.exit("Stopped; what is stored is kept, and the same command goes on from there.")


if __name__ == "__main__":
    logging.disable()  # what goes wrong is said above, in a sentence
    main(*sys.argv[1:])
