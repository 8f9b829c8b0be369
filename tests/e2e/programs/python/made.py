# Code that is made at run time, with odd names and tables, and gone at once; and code in an archive.
import os
import shutil
import sys
import tempfile
import zipfile

from telling import P, case, run_made, told


@case
def code_that_dies(malloc):
    body = "    malloc(P, told())\n"
    long = "a_file_with_a_name_that_is_longer_than_what_would_fit_into_a_line_of_the_cache_"
    for number in range(60):
        # The same but for the line, ...
        run_made(malloc, "\n" * (number % 7) + "def made():\n" + body, "made.py")
        # the file, the end of a long one, ...
        run_made(malloc, "def made():\n" + body, "made%d.py" % (number % 7))
        run_made(malloc, "def made():\n" + body, long + "%d.py" % (number % 7))
        # the name, the end of a long one, its beginning, ...
        for name in ("f%d", "f" * 90 + "%d", "f%d" + "f" * 90):
            name = name % (number % 7)
            run_made(malloc, "def %s():\n%s\nmade = %s" % (name, body, name), "made.py")
        # the qualified name, ...
        run_made(malloc, "class A%d:\n def made():\n %s\nmade = A%d.made"
                 % (number % 7, body, number % 7), "made.py")
        # where in the function the line is, in tables of the same length, ...
        gaps = ["\n" * (1 + (number + place) % 3) for place in range(3)]
        run_made(malloc, "def made():\n    x = 1\n" + "    x = 2\n".join(gaps) + body, "made.py")
        # and far behind a table's beginning.
        many = "".join("    x%d = 1\n" % place for place in range(80))
        run_made(malloc, "def made():\n" + many + "\n" * (number % 7) + body, "made.py")


@case
def names(malloc):
    for name in (
        "größe",  # 1 byte a character, but not ASCII
        "функция",  # 2
        "𠀀𠀁",  # 4
        "f" + "ü" * 299,
        "f" * 300,
        "f" * 511,
        "f" * 512,
        "f" * 513,
        "f" * 3000,
        "ф" * 300,
    ):
        run_made(malloc, "def %s():\n    malloc(P, told())\nmade = %s" % (name, name), name + ".py")
    for file in (
        "/a" * 150 + "/f.py",
        "/a" * 510 + "/fff",
        "/a" * 510 + "/fffff",
        "/ä" * 600 + "/f.py",
        "/ф" * 600 + "/f.py",
        "a b\tc\n\"'<&>\\.py",
        "\ud800.py",
        "",
    ):
        run_made(malloc, "def made():\n    malloc(P, told())\n", file)


@case
def large_tables(malloc):
    for count in (100, 300, 1000, 3000, 8000):
        many = "".join("    x%d = (1,\n %d)\n" % (n % 9, n) for n in range(count))
        run_made(malloc, "def made():\n" + many + "    malloc(P, told())\n", "made.py")


@case
def larger_table_than_is_copied(malloc):
    many = "".join("    x%d = (1,\n %d)\n" % (n % 9, n) for n in range(36000))
    call = "    malloc(P, told())\n"
    run_made(malloc, "def made():\n" + call + many + call, "made.py")


@case
def modules(malloc):
    source = """
import frames_in_zip.tools as tools

tools.malloc(tools.P, tools.told())


def function():
    tools.malloc(tools.P, tools.told())


class Thing:
    def method(self):
        function()
"""
    folder = tempfile.mkdtemp()
    try:
        archive = os.path.join(folder, "größe.zip")
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("frames_in_zip/__init__.py", "")
            file.writestr("frames_in_zip/tools.py", "")
            file.writestr("frames_in_zip/inner/__init__.py", "")
            file.writestr("frames_in_zip/inner/module.py", source)
        sys.path.insert(0, archive)
        import frames_in_zip.tools as tools

        tools.malloc, tools.P, tools.told = malloc, P, told
        from frames_in_zip.inner import module

        module.function()
        module.Thing().method()
        sys.path.remove(archive)
        for name in [name for name in sys.modules if name.startswith("frames_in_zip")]:
            del sys.modules[name]
    finally:
        shutil.rmtree(folder)
