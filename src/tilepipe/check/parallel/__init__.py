"""Checking many instances: one after another or in processes of this machine (`instances`,
`workers`), several processes on one instance (`shared`), or on a Dask cluster (`dask`). `recipes`:
one instance.
"""

from tilepipe.check.parallel.instances import check_all as check_all
from tilepipe.check.parallel.recipes import Instance as Instance, InstanceError as InstanceError
