"""From measured runs to a profile: parameters, fit, cross-validation, intervals."""
