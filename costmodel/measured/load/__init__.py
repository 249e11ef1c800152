"""Load tests of real servers: read, replayed, and scored beside what was measured."""
