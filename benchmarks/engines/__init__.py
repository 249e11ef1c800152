"""Twenty deployments of real engines: solved with ``--engine``, exported, and read by the engines themselves."""
