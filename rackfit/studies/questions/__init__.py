"""One study per file; each has a ``STUDY`` named like its file (``scale_up.py``: ``scale-up``)."""
