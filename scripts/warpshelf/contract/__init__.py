"""What a snippet must be: its source read without running it, its values checked once imported.

Enters: folders below snippets/. Leaves: `Snippet`, its digest and findings, and new folders by
`shelf new`. Imports core alone; it reaches a bare machine, so neither torch nor pydantic.
"""
