"""Checking many instances: one after another or in processes of this machine (`instances`,
`workers`), several processes on one instance (`shared`), or on a Dask cluster (`dask`).
"""

from tilepipe.check.parallel.instances import (
    Instance as Instance,
    InstanceError as InstanceError,
    check_all as check_all,
)
