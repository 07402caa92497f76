# Gives a name of the contract the wrong shape.
# says: :\d+: VARIANTS\['product'\] is no function; give a callable
# ---- cases.py ----
VARIANTS = {"product": "kernel"}
