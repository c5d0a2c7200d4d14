"""``moonflower doctor``: what would go wrong, said before anything starts.

One file per subject. A check is a function that returns findings and changes nothing.
"""
