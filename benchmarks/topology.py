"""Time and memory of the largest fabrics: ``python -m benchmarks.topology`` prints one table."""

import time
import tracemalloc

from topology import load_cluster

NAMES = ("nvl576", "tpu-v4-16x16x16", "gb200-nvl72@64", "hgx-h100@128")
CALLS = 1000


def main() -> None:
    print(
        f"{'cluster':<20}{'chips':>7}{'build s':>9}{'graph s':>9}{'MB':>6}{'new us':>9}{'known us':>10}"
    )
    for name in NAMES:
        start = time.perf_counter()
        cluster = load_cluster(name)
        built = time.perf_counter()
        tracemalloc.start()
        _ = cluster.graph
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        domains, chips = len(cluster.domains), len(cluster.domains[0].chips)
        fresh = load_cluster(name)
        start_graph = time.perf_counter()
        _ = fresh.graph
        graphed = time.perf_counter() - start_graph
        sizes = [count for count in (1, 2, 4, 8, 16, 32, 64, 72, 256) if count <= chips]
        kinds = ("all-reduce", "all-gather", "all-to-all", "dispatch")
        first = time.perf_counter()
        for count in sizes:
            for kind in kinds:
                fresh.rate_for(kind, 0, count, domains, top_k=8)
        new = (time.perf_counter() - first) / len(sizes) / len(kinds)
        first = time.perf_counter()
        for _ in range(CALLS):
            fresh.rate_for("dispatch", 0, sizes[-1], domains, top_k=8)
        known = (time.perf_counter() - first) / CALLS
        print(
            f"{name:<20}{len(cluster.chips):>7}{built - start:>9.2f}{graphed:>9.2f}"
            f"{memory / 1e6:>6.0f}{new * 1e6:>9.0f}{known * 1e6:>10.2f}"
        )


if __name__ == "__main__":
    main()
