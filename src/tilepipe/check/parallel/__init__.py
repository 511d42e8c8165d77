"""Checking many instances: in processes of this machine (`workers`), several of them on one
instance (`shared`), or on Dask (`dask`).
"""

from tilepipe.check.parallel.instances import Instance as Instance
from tilepipe.check.parallel.instances import InstanceError as InstanceError
from tilepipe.check.parallel.instances import check_all as check_all
