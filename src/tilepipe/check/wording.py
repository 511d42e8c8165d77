"""Texts beside a verdict, for people."""

MEANING = (
    "Verified means: these instances of this configuration, in every interleaving of the model that"
    " docs/verification-gaps.md describes; never other shapes."
)
NOT_REACHED = (
    "Not reached, so nothing is verified about these lines. Choose problems, or settings, that"
    " reach them:"
)
EXPLORED = "Explored, since one execution does not stand for all:"
