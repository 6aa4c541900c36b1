"""Threads started inside: each has variables of its own."""

import threading


def work(results, index):
    value = index * 10
    results[index] = value


def main():
    results = [None, None]
    for index in range(2):
        thread = threading.Thread(target=work, args=(results, index))
        thread.start()
        thread.join()
    return results
