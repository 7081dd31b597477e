"""Facts about arrays: one value, its labels, its mesh, and its path in the user's code.

live: all live arrays, and their growth. holders: what refers to an array. traced: values inside jit. origins:
the lines that made arrays. plans: arrays on a mesh that is not here.
"""
