"""Keep what nbval's run of a notebook puts out, so that the book's build need not run it again.

As a plugin of pytest (`-p executed --nbval-lax --keep-executed CACHE`): each notebook whose cells
all passed goes into the execution cache that the build reads. As a program, `executed.py CACHE
NOTEBOOK…` prints the notebooks that are not in the cache.
"""

import copy
import functools
import sys

import nbformat
import nbval.kernel
import nbval.plugin
import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete

CLIENT = pytest.StashKey[NotebookClient]()


class Kernel(nbval.kernel.RunningKernel):
    """A kernel of nbval that executes as the build does, and keeps what the last cell sent."""

    request, heard = "", ()

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        """Execute a cell with history, where a `;` at the end hides the cell's value."""
        self.heard = []
        self.request = self.kc.execute(cell_input, allow_stdin=allow_stdin, stop_on_error=False)
        return self.request

    def get_message(self, stream: str, timeout: float | None = None) -> dict:
        """Return the next message, and keep it if it comes from the cell."""
        message = super().get_message(stream, timeout)
        if stream == "iopub" and message["parent_header"].get("msg_id") == self.request:
            self.heard.append(message)
        return message


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the cache."""
    parser.addoption("--keep-executed", metavar="CACHE", required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Let nbval start our kernels, with no history on disk, and make the cache for all workers."""
    nbval.plugin.RunningKernel = Kernel
    nbval.kernel.start_new_kernel = functools.partial(
        nbval.kernel.start_new_kernel, extra_arguments=["--HistoryManager.hist_file=:memory:"]
    )
    _ = get_cache(config.option.keep_executed).db


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """After a cell that passed, keep its outputs, and after the last one the notebook."""
    yield
    if not isinstance(item, nbval.plugin.IPyNbCell):
        return
    file = item.parent
    if CLIENT not in file.stash:
        file.stash[CLIENT] = NotebookClient(copy.deepcopy(file.nb), record_timing=False)
    client = file.stash[CLIENT]
    codes = [i for i, cell in enumerate(client.nb.cells) if cell.cell_type == "code"]
    index = codes[item.cell_num]
    client.nb.cells[index].outputs = []
    client.clear_before_next_output = False
    for message in file.kernel.heard:
        try:
            client.process_message(message, client.nb.cells[index], index)
        except CellExecutionComplete:
            break
    client.code_cells_executed += 1
    if client.code_cells_executed == len(codes):
        client.set_widgets_metadata()
        info = file.kernel.kc.kernel_info(reply=True, timeout=60)["content"]
        client.nb.metadata["language_info"] = info["language_info"]
        bundle = CacheBundleIn(client.nb, str(file.path))
        cache = get_cache(item.config.option.keep_executed)
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def main(folder: str, *paths: str) -> None:
    """Print the notebooks that are not in the cache."""
    cache = get_cache(folder)
    for path in paths:
        try:
            cache.match_cache_notebook(nbformat.read(path, 4))
        except KeyError:
            print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
