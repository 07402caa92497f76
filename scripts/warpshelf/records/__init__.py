"""What a run leaves behind: records, their schema and place, their claims, their machine.

Enters: answers of children, files of other machines. Leaves: snippets/<id>/results/<machine>.json
and the ledger of this checkout. Imports contract and core; it reaches a bare machine.
"""
