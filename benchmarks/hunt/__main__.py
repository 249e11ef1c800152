"""``python -m benchmarks.hunt``; what runs in other processes must be importable, so it is elsewhere."""

from benchmarks.hunt.running import main

if __name__ == "__main__":
    raise SystemExit(main())
