# Lacks a name of the contract.
# without: PEERS
# says: PEERS is missing; add `PEERS = \{"torch": function\}`
