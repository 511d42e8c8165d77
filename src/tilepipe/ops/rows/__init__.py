"""`ops.layer_norm`, `ops.softmax`, `ops.cross_entropy`, and the gradients of these and of
`ops.rms_norm`.
"""
