"""Class bodies, methods, slots, a property, a class made by a metaclass with its own namespace."""


class Names(dict):
    def __setitem__(self, name, value):
        super().__setitem__(name, value)


class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return Names()


def main():
    class Point(metaclass=Meta):
        limit = 10
        names = list("xy")

        def __init__(self, x):
            self.x = x
            self.cache = None

        def move(self, by):
            self.x += by
            self.cache = {"by": by}
            self.cache["moved"] = True
            return self.x

    point = Point(1)
    moved = point.move(4)
    del point.cache
    return moved, Point.limit, Point.names
