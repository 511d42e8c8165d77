"""`ops.attention_backward`: the gradients of `ops.attention`, which autograd takes from here."""
