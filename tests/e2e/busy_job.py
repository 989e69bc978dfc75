# SPDX-License-Identifier: Apache-2.0
"""Hold a program for jobs that works for a given CPU time and writes down what it really used."""

PROGRAM = """
import os, resource, sys, time
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
def work(seconds):
    until = used() + seconds
    while used() < until:
        pass
work(float(sys.argv[2]))
for _ in range(600 * (len(sys.argv) > 3)):
    if os.path.exists(sys.argv[3]):
        work(float(sys.argv[2]))
        break
    time.sleep(0.1)
with open(sys.argv[1], "w") as file:
    file.write(str(used()))
"""
"""Its arguments: the file to write, the seconds, and a file on whose appearance it works as long again."""
