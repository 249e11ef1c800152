"""``python -m rackfit`` is the ``rackfit`` command."""

from rackfit.cli.app import main

if __name__ == "__main__":
    main()
