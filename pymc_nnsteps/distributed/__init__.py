"""Past one session and one machine: runs on many machines, and rows in shards.

==========  ==================================================================
module      its subject
==========  ==================================================================
``rounds``  which draws of a sweep are of rows, which are shared, and when
``shards``  the rows of a shard, and what is drawn once for all of them
``crew``    shards in this process, or on the workers of a Dask cluster
``sharded`` chains over shards
==========  ==================================================================
"""
