"""Every module that registers operators with PyTorch, by the name of its folder: for code that
torch.compile traces, which may import by a statement only.
"""

from tilepipe.ops.append_kv import gpu as append_kv
from tilepipe.ops.attention import gpu as attention
from tilepipe.ops.attention_backward import gpu as attention_backward
from tilepipe.ops.attention_decode import gpu as attention_decode
from tilepipe.ops.gated import gpu as gated
from tilepipe.ops.grouped import gpu as grouped
from tilepipe.ops.matmul import gpu as matmul
from tilepipe.ops.quantised import gpu as quantised
from tilepipe.ops.rms_norm import gpu as rms_norm
from tilepipe.ops.rows import operators as rows
from tilepipe.ops.scaled import gpu as scaled

__all__ = [
    "append_kv",
    "attention",
    "attention_backward",
    "attention_decode",
    "gated",
    "grouped",
    "matmul",
    "quantised",
    "rms_norm",
    "rows",
    "scaled",
]
