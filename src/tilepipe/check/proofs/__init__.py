"""Facts about a kernel that make the search smaller.

- `guards`: tests that may be treated as the waits that they guard (docs/decisions, 11).
- `polling`: loops that poll, and when a round of one changes nothing.
"""
