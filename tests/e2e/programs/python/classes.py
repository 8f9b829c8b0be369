# Every way by which a class is called.
import gc

from telling import P, case, told


@case
def classes(malloc):
    class Meta(type):
        def __new__(cls, *args):
            malloc(P, told())
            return super().__new__(cls, *args)

        @classmethod
        def __prepare__(cls, *args):
            malloc(P, told())
            return {}

        def __call__(cls, *args):
            malloc(P, told())
            return super().__call__(*args)

        def __instancecheck__(cls, instance):
            malloc(P, told())
            return True

    class Descriptor:
        def __set_name__(self, owner, name):
            malloc(P, told())

        def __get__(self, instance, owner):
            malloc(P, told())

        def __set__(self, instance, value):
            malloc(P, told())

        def __delete__(self, instance):
            malloc(P, told())

    class Thing(metaclass=Meta):
        malloc(P, told())
        descriptor = Descriptor()

        def __new__(cls):
            malloc(P, told())
            return super().__new__(cls)

        def __init__(self):
            malloc(P, told())

        def __init_subclass__(cls):
            malloc(P, told())

        @property
        def value(self):
            malloc(P, told())

        @classmethod
        def of_class(cls):
            malloc(P, told())

        @staticmethod
        def static():
            malloc(P, told())

        def __call__(self):
            malloc(P, told())

        def __getattr__(self, name):
            malloc(P, told())

        def __setattr__(self, name, value):
            malloc(P, told())

        def __getitem__(self, index):
            malloc(P, told())
            if index == 2:
                raise IndexError

        def __enter__(self):
            malloc(P, told())

        def __exit__(self, *_):
            malloc(P, told())

        def __eq__(self, other):
            malloc(P, told())
            return False

        def __lt__(self, other):
            malloc(P, told())
            return False

        def __hash__(self):
            malloc(P, told())
            return 1

        def __add__(self, other):
            malloc(P, told())

        def __len__(self):
            malloc(P, told())
            return 1

        def __bool__(self):
            malloc(P, told())
            return True

        def __repr__(self):
            malloc(P, told())
            return ""

        def __format__(self, spec):
            malloc(P, told())
            return ""

        def __index__(self):
            malloc(P, told())
            return 1

        def __contains__(self, item):
            malloc(P, told())

        def __class_getitem__(cls, item):
            malloc(P, told())

    class Under(Thing):
        def __init__(self):
            super().__init__()
            malloc(P, told())

    for _ in range(20):
        thing = Thing()
    Under()
    # Repeatedly, so that each of these is specialised.
    for _ in range(20):
        thing.value
        thing.absent
        thing.present = 1
        thing.descriptor
        thing()
        thing[0]
        thing + 1
        thing.of_class()
        thing.static()
        thing == 1
        len(thing)
    thing.descriptor = 1
    del thing.descriptor
    isinstance(1, Thing)
    list(iter(thing))
    with thing:
        pass
    {thing: 1}
    [thing].count(1)
    sorted([thing, thing])
    if thing:
        pass
    f"{thing!r} {thing}"
    str([thing])
    [1, 2][thing]
    1 in thing
    Thing[1]

    class Deleted:
        def __del__(self):
            malloc(P, told())

    Deleted()
    cycle = [Deleted()]
    cycle.append(cycle)
    del cycle
    gc.collect()
