"""From one layout to another: what chips hold, what they must load, and how long that takes. Never imports the solver."""
