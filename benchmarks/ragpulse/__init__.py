"""The RAGPulse day: static deployments that cover a share of its requests, beside those that were published."""
