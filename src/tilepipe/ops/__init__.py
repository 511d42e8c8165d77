"""Array operations backed by the shipped kernels."""

from tilepipe.ops.append_kv.public import append_kv as append_kv
from tilepipe.ops.attention.public import attention as attention
from tilepipe.ops.attention_backward.public import attention_backward as attention_backward
from tilepipe.ops.attention_decode.public import attention_decode as attention_decode
from tilepipe.ops.gated.public import gated_matmul as gated_matmul
from tilepipe.ops.grouped.public import grouped_matmul as grouped_matmul
from tilepipe.ops.matmul.public import matmul as matmul
from tilepipe.ops.quantised.public import (
    prepare_weights as prepare_weights,
    quantised_matmul as quantised_matmul,
)
from tilepipe.ops.rms_norm.public import rms_norm as rms_norm
from tilepipe.ops.rows.public import (
    cross_entropy as cross_entropy,
    layer_norm as layer_norm,
    softmax as softmax,
)
from tilepipe.ops.scaled.public import scaled_matmul as scaled_matmul

__all__ = [
    "append_kv",
    "attention",
    "attention_backward",
    "attention_decode",
    "cross_entropy",
    "gated_matmul",
    "grouped_matmul",
    "layer_norm",
    "matmul",
    "prepare_weights",
    "quantised_matmul",
    "rms_norm",
    "scaled_matmul",
    "softmax",
]
