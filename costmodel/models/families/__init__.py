"""One file per architecture family; each is found by its file name.

A family file defines ``FAMILY`` (names in ``model_type`` and ``architectures``, and a reader) and
``read(b)``, which asks the config for keys through ``b`` and returns ``decoder(b, layer_at, ...)``.
``llama.py`` is the smallest example. Keys are asked for with a default only where the model's own
code has one: each default that is used becomes a note. What has no effect is named in ``ignore``.
"""
