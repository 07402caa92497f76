"""The command line: commands, their questions, their progress and answers.

Enters: words. Leaves: text and an exit status. Each command imports the rooms that it needs when
it is called, so that none waits for another's libraries.
"""
