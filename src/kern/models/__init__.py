"""Providers: generators of manifests and weights for model families."""
