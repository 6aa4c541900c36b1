"""Text given to exec and eval, with namespaces of its own and with none."""


def main():
    space = {"start": 5}
    exec("total = start\nfor n in range(2):\n    total += n\n", space)
    value = eval("total * 2", space)
    exec("def inner(k):\n    m = k + 1\n    return m\nresult = inner(3)\n", space)
    return value, space["result"]
