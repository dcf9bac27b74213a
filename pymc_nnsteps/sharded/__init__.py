"""Chains over rows that are split into shards, in one process or on many machines.

============  =================================================================
module        its subject
============  =================================================================
``rounds``    which draws of a sweep are of rows, which are shared, and when
``shards``    the rows of a shard, and what is drawn once for all of them
``sampling``  chains over shards, in this process or on a Dask cluster
============  =================================================================
"""

from pymc_nnsteps.sharded.sampling import sample_sharded

__all__ = ["sample_sharded"]
