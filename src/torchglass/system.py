"""What we ask of the system, as it was when torchglass was imported: tests put functions of their own in its place."""

from __future__ import annotations

import os
import threading
import time

stat_of = os.stat
getpid = os.getpid
current_thread = threading.current_thread
get_ident = threading.get_ident
main_thread = threading.main_thread
monotonic = time.monotonic
perf_counter_ns = time.perf_counter_ns
seconds_now = time.time
sleep = time.sleep


def thread_name() -> str:
    """Return the name of the calling thread, also where a test has replaced what ``threading`` finds it by."""
    try:
        return current_thread().name
    except Exception:
        if main_thread().ident == get_ident():
            return main_thread().name
        return f"thread {get_ident()}"
