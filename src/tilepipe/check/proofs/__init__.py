"""Static proofs that let one execution stand for many."""
