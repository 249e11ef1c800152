"""How a checkpoint is quantised: formats, which modules have them, the dialects of quantisers."""
