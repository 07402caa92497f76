# Gives a name of the contract the wrong shape.
# says: :\d+: VARIANTS\['product'\] is no function; give a callable
VARIANTS = {"product": "kernel"}
