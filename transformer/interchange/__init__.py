"""Models from elsewhere and for elsewhere; only convert.py comes here.

Whatever is read may come from a stranger: nothing in it is executed, and sizes are checked before
memory is taken.
"""
