"""Measure the library against plain loops, on this machine, in one run: ``make bench``.

Each row is the median of several runs of the library, and of the plain loop of ``loops.py`` that
ends with the same models (``tests/test_loops.py``). Where a loop would take minutes, a share of its
clients or rounds is timed and the time scaled up; the table says so. The images are random bytes:
no time here depends on what they show.
"""

import argparse
import os
import platform
import statistics
import time

import loops
import torch

import clusterfl_core as cf
from clusterfl_core.models import MLP, CFLConvNet, FedSoftLetters, IFCACifar, LinearRegression

REPEATS = 5


def seconds(work, repeats):
    """Median of several timings, after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:] or times)


def once(work):
    """The faster of two timings, for what takes long: the first one warms up."""
    return min(seconds(work, 0), seconds(work, 0))


def gemm_rate(size=2048):
    """GFLOP/s of one large product of matrices: what the machine can do."""
    a = torch.randn(size, size)
    return 2 * size**3 / seconds(lambda: a @ a, 7) / 1e9


def images(clients, points, *shape):
    """Clients with random pictures and labels."""
    source = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (clients, points, *shape), generator=source, dtype=torch.uint8)
    y = torch.randint(0, 10, (clients, points), generator=source)
    group = cf.Clients(x, y, torch.full((clients,), points))
    return cf.Federation(group, group.take([0]), classes=10)


def one_round(algorithm, federation):
    """A round of the library from its first state, as a function without arguments."""
    state = algorithm.init(federation, 0)

    def work():
        next(cf.rounds(algorithm, federation, 1, device="cpu", start=state, keep=False))

    return work


def ifca(clients, counted, repeats):
    """A round of Rotated MNIST's size: n = 100, k = 4, 10 full-batch steps, 200 hidden units."""
    n, d, h, k, tau, classes = 100, 784, 200, 4, 10, 10
    algorithm = cf.IFCA(MLP(d, h, classes), k, cf.LocalSGD(tau, 0.1))
    federation, few = images(clients, n, 28, 28), images(counted, n, 28, 28)
    bank = algorithm.init(federation, 0).bank
    choose = k * n * h * (d + classes)
    steps = n * n * d + (tau - 1) * n * n * h + n * h * d + tau * 3 * n * h * classes
    ours = seconds(one_round(algorithm, federation), repeats)
    loop = once(lambda: loops.ifca_round(algorithm, few, bank, (0, 0))) * clients / counted
    return ours, loop, 2 * clients * (choose + steps) / 1e9, counted < clients


def regression(repeats, rounds=10, every=True):
    """A trial of Figure 3 a: 100 clients, d = 1000, 10 starts and 3 step sizes, 300 rounds."""
    point = {"clients": 100, "points": 100, "features": 1000}
    truth = torch.randint(0, 2, (2, 1000), generator=torch.Generator().manual_seed(0)).float()
    federation = cf.populations.regression(truth, clients=100, points=100, noise=0.1)
    starts = cf.trials.first_models(point["features"], 2, range(10), torch.float32)
    steps = [0.1, 0.01, 0.001]  # none diverges, so every run is computed to the end
    ours = seconds(lambda: cf.trials.regression_trial(federation, starts, steps, rounds), repeats)
    model = LinearRegression(1000)
    loop = once(
        lambda: loops.regression_trial(federation, starts[:1], steps[:1], rounds, model, every)
    )
    scale = 300 / rounds
    flop = 300 * 100 * 30 * 2 * (2 + 1) * 100 * 1000 / 1e9  # losses of two models, one gradient
    return ours * scale, loop * 30 * scale, flop, True


def cfl(repeats):
    """A round of CFL: 20 clients, 100 images each, its CNN, 3 epochs in batches of 20."""
    solver = cf.LocalSGD(epochs=3, step_size=0.1, batch_size=20)
    algorithm = cf.CFL(CFLConvNet(1, 28, 10), local=solver, eps1=1.0, eps2=0.1)
    federation = images(20, 100, 28, 28)
    state = algorithm.init(federation, 0)
    ours = seconds(one_round(algorithm, federation), repeats)
    return ours, once(lambda: loops.cfl_round(algorithm, federation, state)), None, False


def bipartition(repeats):
    """Similarities and bipartition of 2,000 updates of 10,000 parameters."""
    updates = torch.randn(2000, 10_000, generator=torch.Generator().manual_seed(0))

    def ours():
        cf.cfl.optimal_bipartition(cf.cfl.cosine_similarity(updates))

    def loop():
        loops.two_clusters(loops.similarities(list(updates[:200])))

    return seconds(ours, repeats), once(loop) * 100, None, True


def fedsoft_regression(repeats):
    """A round of FedSoft's synthetic experiment: 100 clients, 60 selected, 10 epochs of Adam."""
    federation = cf.populations.mixture_regression("10:90", clients=100)
    solver = cf.LocalAdam(epochs=10, step_size=5e-3, batch_size=10)
    algorithm = cf.FedSoft(LinearRegression(10), 2, solver, proximal=1.0, selected=60)
    state = algorithm.init(federation, 0)
    ours = seconds(one_round(algorithm, federation), 3 * repeats)
    return ours, once(lambda: loops.fedsoft_round(algorithm, federation, state)), None, False


def fedsoft_letters(repeats):
    """A round of FedSoft on letters: 10 clients, 100 images each, one epoch in batches of 5."""
    federation = images(10, 100, 28, 28)
    solver = cf.LocalAdam(epochs=1, step_size=1e-5, batch_size=5)
    algorithm = cf.FedSoft(FedSoftLetters(1, 28, 10), 2, solver, proximal=0.1, selected=5)
    state = algorithm.init(federation, 0)
    ours = seconds(one_round(algorithm, federation), repeats)
    return ours, once(lambda: loops.fedsoft_round(algorithm, federation, state)), None, False


def cnn(repeats):
    """A round of IFCA on CIFAR's size: 10 clients, 100 crops each, k = 2, 2 steps of 50."""
    federation = images(10, 100, 3, 24, 24)
    algorithm = cf.IFCA(IFCACifar(3, 24, 10), 2, cf.LocalSGD(2, 0.1, 50))
    bank = algorithm.init(federation, 0).bank
    ours = seconds(one_round(algorithm, federation), repeats)
    return ours, once(lambda: loops.ifca_round(algorithm, federation, bank, (0, 0))), None, False


CASES = {
    "IFCA round, m = 240": lambda r: ifca(240, 240, r),
    "IFCA round, m = 2400": lambda r: ifca(2400, 240, max(1, r // 2)),
    "regression trial, 300 rounds": regression,
    "CFL round, CNN": cfl,
    "CFL bipartition, m = 2000": bipartition,
    "FedSoft round, regression": fedsoft_regression,
    "FedSoft round, letters CNN": fedsoft_letters,
    "IFCA round, CNN": cnn,
}


def main():
    """Print one table, a row a case, while the cases are measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.threads < 1:
        parser.error("threads must be at least 1")
    torch.set_num_threads(options.threads)
    rate = gemm_rate()
    print(
        f"{platform.processor() or platform.machine()}, {options.threads} threads, PyTorch "
        f"{torch.__version__}; one product of 2048 x 2048 matrices: {rate:.0f} GFLOP/s\n"
    )
    print("| work | ours, s | loop, s | ratio | GFLOP/s | of the product |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, case in CASES.items():
        ours, loop, gflop, scaled = case(REPEATS)
        done = f"{gflop / ours:.0f} | {gflop / ours / rate:.0%}" if gflop else " | "
        mark = "*" if scaled else ""
        print(
            f"| {name} | {ours:.3g} | {loop:.3g}{mark} | {loop / ours:.1f} | {done} |", flush=True
        )
    print("\n\\* A share of the loop was timed and scaled up.")


if __name__ == "__main__":
    main()
