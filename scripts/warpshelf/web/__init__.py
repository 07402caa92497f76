"""What the web says: pages fetched within limits, and what they say of a work.

Enters: addresses. Leaves: answers, and the title, authors, year and venue of a work. Imports
readings and core; httpx lives here.
"""
