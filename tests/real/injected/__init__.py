"""Goes into a copy of the app: the same apps, which die or wait at chosen points.

The product itself has no hooks. ``tests.real.app_copy`` writes ``plan.py`` next to this file.
"""
