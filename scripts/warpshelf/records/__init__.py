"""What a run leaves behind: the record, its schema and place, what it may claim, its machine.

Enters: answers of children, files of other machines. Leaves: snippets/<id>/results/<machine>.json
and the ledger of this checkout. Imports contract and core; it reaches a bare machine.
"""
