"""Checking many instances: in processes of this machine (`workers`), several of them on one
instance (`shared`), or on Dask (`dask`).
"""

from tilepipe.check.campaign.instances import CampaignError as CampaignError
from tilepipe.check.campaign.instances import Instance as Instance
from tilepipe.check.campaign.instances import check_all as check_all
