"""What a reading is: the lists beside the pages, read, validated and compared.

Enters: docs/**/*.yml. Leaves: `Shelf`, its topics and readings, findings by line, which work an
address or a title names, and the JSON Schema for editors. Imports core alone; pydantic and
rapidfuzz live here.
"""
