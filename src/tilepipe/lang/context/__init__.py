"""The members of `ctx`, grouped by subject."""
