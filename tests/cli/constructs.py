"""Python constructs, each as a file with a function ``run``."""

import sys

_PLAIN = {
    "comprehensions": """
        def run():
            rows = [[x * y for y in range(3) if -y < 1] for x in range(2)]
            return rows, {x + 1 for x in range(3)}, {x: x ** 2 for x in range(3)}, sum(x % 2 for x in range(9))
        """,
    "closures": """
        def outer(start):
            total = start + 0
            def add(x):
                nonlocal total
                total += abs(x)
                return total * 2
            return add
        def run():
            add = outer(int("3"))
            return add(-1), add(2), add.__closure__[0].cell_contents
        """,
    "super": """
        class Base:
            def f(self, x):
                return x + 1
        class Sub(Base):
            def f(self, x):
                return super().f(x) * 2, __class__.__name__ + "!"
            @classmethod
            def g(cls):
                return super().__name__ if False else cls.__mro__[1].__name__
            @property
            def p(self):
                return self.f(-1)[0]
        def run():
            return Sub().f(3), Sub.g(), Sub().p
        """,
    "mangled names": """
        class A:
            __x = 1 + 1
            def __f(self, __y):
                self.__z = __y * 2
                return self.__z + self.__x
            def f(self):
                return self.__f(3), sorted(vars(self))
        def run():
            return A().f(), [name for name in vars(A) if "_A" in name]
        """,
    "decorators and defaults": """
        import functools
        def twice(f=None, *, by=1 + 1):
            if f is None:
                return functools.partial(twice, by=by)
            @functools.wraps(f)
            def g(*args, **kwargs):
                return f(*args, **kwargs) * by
            return g
        @twice(by=3)
        def f(x, y=[-1, len("ab")], *, z=lambda a, b=-2: a + b):
            return z(x + y[0])
        def run():
            @twice
            def inner(a=int("4") * 2):
                return a + 1
            return f(5), f.__name__, inner(), inner.__wrapped__.__defaults__, f.__wrapped__.__kwdefaults__["z"](1)
        """,
    "annotations": """
        from typing import Optional
        x: int = 3 * 2
        def f(a: Optional[int] = None, *, b: "list[int]" = [1][:1]) -> dict[str, int]:
            c: tuple[int, ...] = (a or 1) + 1,
            d: undefined_name[0]
            return {"c": c[0] + b[0]}
        class C:
            y: list[int] = [1] * 2
        def run():
            return f(2), sorted(f.__annotations__), str(f.__annotations__["return"]), str(C.__annotations__), x
        """,
    "dataclasses": """
        import dataclasses
        @dataclasses.dataclass(frozen=True, order=True, slots=True)
        class Point:
            x: int
            y: int = dataclasses.field(default=2 * 3, metadata={"a": -1})
            def __post_init__(self):
                object.__setattr__(self, "x", self.x + 1)
        def run():
            return repr(Point(1)), Point(1) < Point(2, -1), dataclasses.astuple(Point(0)), Point.__slots__
        """,
    "match": """
        class P:
            __match_args__ = ("x", "y")
            def __init__(self, x, y):
                self.x, self.y = x, y
        import enum
        Color = enum.Enum("Color", "RED BLUE")
        def f(value):
            match value:
                case -1 | 1 + 2j:
                    return -value
                case [P(x, y=-3), *rest] if len(rest) > -1:
                    return x + len(rest)
                case {"a": [a, _], **others}:
                    return a * 2, others
                case Color.RED:
                    return "red" + "!"
                case str() as text:
                    return text[::-1]
                case _:
                    return None
        def run():
            given = [-1, 1 + 2j, [P(1, -3), 2], {"a": [2, 3], "b": 4}, Color.RED, "abc", 5.5]
            return [f(one) for one in given]
        """,
    "walrus": """
        def run():
            found = [y := 1 + 1, y ** 2]
            while (n := len(found)) < 5:
                found.append((m := n * 2) + y)
            return found, m, n, [z := i + 1 for i in range(3)], z
        """,
    "f-strings": """
        def run():
            x, width, parts = 3, 4 * 2, ["a", "b"]
            return (f"{x + 1} {x * 2=} {x!r:>{width + 1}} {f'{x - 1:0{width - 2}d}'} {{}} {', '.join(parts)}",
                f\"\"\"
                {x +
                   1} {parts[0]
                       + parts[-1]}\"\"\", "a" f"{len(parts)}" "b")
        """,
    "async": """
        import asyncio, contextlib
        async def one(x):
            await asyncio.sleep(0)
            return x + 1
        async def many(n):
            for i in range(n):
                yield await one(i) * 2
        @contextlib.asynccontextmanager
        async def context():
            yield -1
        async def main():
            found = [x - 1 async for x in many(3)]
            async with context() as c, context():
                found.append(c + await one(4))
            async for x in many(2):
                found.append(-x)
            return found + await asyncio.gather(*[one(i) for i in range(2)])
        def run():
            return asyncio.run(main())
        """,
    "generators": """
        def f(n):
            got = yield n + 1
            while got is not None:
                got = yield (got * 2, (yield from g(got)))
            return n - 1
        def g(x):
            yield abs(-x)
            return x + x
        def run():
            it = f(1)
            found = [next(it), it.send(3), next(it), it.send(4)]
            try:
                it.send(None); it.send(None)
            except StopIteration as error:
                found.append(error.value)
            return found
        """,
    "calls": """
        def f(*args, k=0, **kwargs):
            return args, k, kwargs
        def run():
            a, b = [1, 2], {"k": 3}
            return (f(*a, *[x + 1 for x in a], **b, **dict(z=-1)), f(x for x in a)[0][0].__name__,
                print(*[], end=""), (lambda x, *y, z=-1: (x + z, y))(1, 2), [*a, *map(str, a)], {**b, "c": a[0] + 1})
        """,
    "slices": """
        class S:
            def __getitem__(self, key):
                return key
            def __setitem__(self, key, value):
                self.set = key, value
            def __delitem__(self, key):
                self.deleted = key
        def run():
            s, a = S(), list(range(9))
            a[-2:] = [a[0] + 1]
            del a[len(a) - 1], a[0]
            s[1:2, ..., -1] = 3 * 2
            del s[-1:]
            return s[1:-2:3, ..., None], s[*a[:2], -1], s.set, s.deleted, a, a[::-1][1:][-1]
        """,
    "operators": """
        def run():
            x, order = 3, []
            def v(n):
                order.append(n)
                return n
            found = [v(1) < v(3) < v(2) < v(9), not v(0), v(0) or v(5) and -v(6), v(1) if v(0) else ~v(2)]
            x += v(7); x @= M(); x <<= 2
            a = [1, 2]; a[v(0)] += v(8); a[-1] -= 1
            p = q = v(4) * 2
            (b, *c), d = (1, 2, 3), +x
            return found, order, x, a, p, q, b, c, d, a is not p, 2 in [2 + 0], -2 ** 2, (-2) ** 2, - - 1
        class M:
            def __rmatmul__(self, other):
                return other + 10
        """,
    "attributes": """
        class A:
            T = 5
            mT: int = 6
        def run():
            a = A(); a.T += 1; a.mT = a.T * 2
            del a.T
            return a.T, a.mT, A.T, vars(a)
        """,
    "exceptions": """
        import contextlib
        class E(Exception):
            pass
        def f(x):
            try:
                return 10 // x
            except ZeroDivisionError as error:
                raise E(str(error) + "!") from error
            else:
                x += 1
            finally:
                seen.append(-x)
        seen = []
        def run():
            found = [f(3)]
            try:
                f(0)
            except (E, KeyError) as error:
                found.append((str(error), type(error.__cause__).__name__))
            try:
                raise ExceptionGroup("g" * 2, [ValueError(1), TypeError(2)])
            except* ValueError as group:
                found.append(len(group.exceptions) + 1)
            except* TypeError:
                found.append("t" * 2)
            with contextlib.suppress(E), contextlib.nullcontext(1 + 1) as n:
                found.append(n); f(0)
            assert found, "empty" + "!"
            return found, seen
        """,
    "scopes": '''
        """Docstring."""
        count = 0
        def f(a, b=2):
            """Inner docstring."""
            global count
            count += 1
            c = a + b
            return sorted(locals()), sorted(vars()), eval("a + c"), count
        class C:
            """Class docstring."""
            x = [1, 2]
            y = [i * 2 for i in [3] * 2]
            def g(self): return "__class__" in dir() or self.x[0] + 1
        if __name__ == "__main__":
            raise SystemExit(1 + 1)
        def run():
            exec("z = 3 * 4", ns := {})
            return f(1), f(2), __doc__, f.__doc__, C.__doc__, C().g(), C.y, ns["z"], f.__code__.co_varnames
        ''',
    "nested classes": """
        def make(base, n):
            class Inner(base[0], **{}):
                size = n * 2
                other = [size + 1]
                def get(self):
                    return self.size + n
                @staticmethod
                def twice(x=n + 1): return x * 2
            return Inner
        def run():
            made = make((object,), 3)
            return made().get(), made.other, made.twice(), made.__qualname__
        """,
    "names in other letters": """
        def größe(été, 数=1):
            ſ = été * 数; π = -ſ; é = "é" + "ü" * 2
            return [(π, é), "日本" + str(ſ)], [été + 1][0]
        def run():
            return größe(2, 数=3 * 1), größe.__name__
        """,
    "lines": """
        def run():
            # 1 + 1
            a = 1 + \\
                2 * \\
                3
            b = (a  # f(a) + 1
                 + 4  # end
                 ) * (
                2
            )
            c = max(
                a + b,   # first
                # a - b

                b - a,
            )[...] if False else {"k": [a,
                b]}["k"][
                -1
            ]; d = -a; e = '''
            x + 1''' + \"""y\"""
            return a, b, c, d, e
        """,
    "tabs and form feeds": "\ndef run():\n\tx = 1 + 2\n\tif x > -1:\n\t  \ty = [x]\t*\t2\n\x0c\n\tz = y[0]\t+ x\n\x0c\treturn x, z, 'é\t' + str(z)\n",
    "an error in several lines": """
        def f(x):
            return (1 +
                    x["a"]
                    [0])
        def run():
            return [
                f(
                    one
                ) + 1
                for one in ({"a": [1]},
                            {"b": -1})
            ]
        """,
    "an error of an operator": """
        def run():
            a = [1]
            b = (a[0]
                 + len(a)
                 + a
                 - 1)
            return b
        """,
    "an error at a call": """
        def fail(n): raise ValueError(
            n + 1
        )
        def run():
            try:
                fail(
                    -1
                )
            finally:
                1 + 1
        """,
    "frames": """
        import sys, inspect, traceback
        def here():
            frame = sys._getframe(1)
            return frame.f_lineno, frame.f_code.co_name, len(inspect.stack()) - depth, sorted(frame.f_locals)
        depth = 0
        def run():
            global depth
            depth = len(inspect.stack())
            x = [here()[:3],
                 here()]
            return x, abs(
                here()[0]), traceback.extract_stack()[-1].lineno, inspect.getsource(here)
        """,
    "a future import": """
        'doc'
        from __future__ import annotations
        def f(a: undefined + 1, b: list[int] = [1][0]) -> "x" * 2:
            c: also[undefined] = -b
            return f.__annotations__, c
        def run():
            return f(1)
        """,
}
_NEWER = {
    "type parameters": """
        class Box[T: (int, str), *Ts, **P]:
            def __init__(self, x: T): self.x = x
            def get[S: list[int]](self, s: S) -> T: return self.x + s[0]
        def first[T: dict[str, int]](x: T, y=1 + 1) -> T:
            type Local[U] = list[U] | dict[str, T]
            return str(Local.__value__)[:4], y * 2
        type Alias = list[int] | None
        def run():
            return Box(1).get([2]), first({}), str(Alias.__value__), str(first.__type_params__[0].__bound__)
        """,
    "f-strings in f-strings": """
        def run():
            x, d = 2, {"a": 1}
            return -x, f"{f"{x + 1}" + f"{d["a"] * 2=}"} {
                x  # a comment
                - 1
            :>{len("ab") + 3}}"
        """,
}


def _dedented(text):
    import textwrap

    return textwrap.dedent(text).lstrip("\n")


_TEXTS = {
    name: _dedented(text)
    for name, text in {**_PLAIN, **(_NEWER if sys.version_info >= (3, 12) else {})}.items()
}
_LETTERS = "def run():\n    é = 'ü' + 'ß'; x = [é][0] + 'ä'\n    return x, -len(x)\n"

CONSTRUCTS = {
    **{name: text.encode() for name, text in _TEXTS.items()},
    "carriage returns": _TEXTS["lines"].replace("\n", "\r\n").encode(),
    "old line ends": _TEXTS["closures"].replace("\n", "\r").encode(),
    "a byte order mark": b"\xef\xbb\xbf" + _TEXTS["names in other letters"].encode(),
    "Latin-1": b"# -*- coding: latin-1 -*-\n" + _LETTERS.encode("latin-1"),
    "no newline at the end": b"def run():\n    return [1 + 1][-1]",
    "many operands": ("def run():\n    return 0" + " + 1" * 100 + "\n").encode(),
}
"""The bytes of files by the name of what is in them."""
