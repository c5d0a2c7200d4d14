"""``moonflower reproduce``: the papers' tables, run cell by cell through the app."""
