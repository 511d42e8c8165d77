"""A release: `make dist` builds wheel and sdist and tries them in clean environments."""
