# Raises while it is imported.
# says: :\d+: raised RuntimeError: no luck at import
raise RuntimeError("no luck")
