"""Ends in the way that its argument says."""

import os
import sys

print("begun", flush=True)
how = sys.argv[1]
if how == "status":
    sys.exit(3)
if how == "nothing":
    sys.exit()
if how == "closed":
    sys.stdout.close()
if how == "at once":
    os._exit(5)
if how == "forked":
    if not os.fork():
        sys.exit(4)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
