"""What-if studies: families of questions asked of the solver, with a figure and a conclusion.

One file in :mod:`rackfit.studies.questions` is one study; no list is edited to add one.
"""
