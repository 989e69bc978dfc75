# SPDX-License-Identifier: Apache-2.0
"""Ask NVIDIA's driver about GPUs, in a child process that may hang or crash without harm.

``child`` is the program, ``sampling`` what it reads, ``process`` holds it and ends it, ``decoding`` turns its
answers into the model, ``reader`` starts it again after a pause when it failed, ``driver`` names
the signs of a loaded driver.
"""
