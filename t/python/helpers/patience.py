"""How long tests wait for what has to come."""

#: Nothing takes nearly as long on a machine that is busy with other things, in seconds; pytest's
#: own limit, which says where a test hangs, is longer.
PATIENCE = 240.0
