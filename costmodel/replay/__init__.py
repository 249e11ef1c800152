"""The second judge: a layout serves requests over time, pass by pass. Never sees the solver."""
