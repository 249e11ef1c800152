"""Expert placement: replicas and slots per layer, with a bound beside each."""
