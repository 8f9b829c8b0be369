"""Every script compiles, has help, and names missing packages, without third-party packages."""

import unittest

from support import PYTHON, ROOT, SCRIPTS, STRESS, run

PROGRAMS = ("paced", "training", "multi_process", "multi_thread", "anomaly")


def scripts():
    folders = (SCRIPTS, ROOT / "tests")
    found = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return [path for path in found if not {"build", "__pycache__"} & set(path.parts)]


def said(done):
    return f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}"


class Programs(unittest.TestCase):
    def test_every_script_compiles(self):
        self.assertGreater(len(scripts()), 20)
        for path in scripts():
            with self.subTest(path.name):
                compile(path.read_text(), str(path), "exec")

    def test_every_program_helps(self):
        for name in ("pid_monitor.py", "plot_monitor.py", "gpu_check"):
            with self.subTest(name):
                self.help_of(SCRIPTS / name)

    def test_stress_programs_say_what_is_counted_and_how_to_get_a_framework(self):
        for name in PROGRAMS:
            with self.subTest(name):
                help_text = self.help_of(STRESS / f"{name}.py")
                for word in ("--seed", "--duration", "cudaMalloc", "JSON"):
                    self.assertIn(word, help_text)
                done = run(*PYTHON, STRESS / f"{name}.py", "--duration", "1")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("pip install torch", done.stderr, said(done))

    def help_of(self, program):
        """What the program prints with --help."""
        done = run(*PYTHON, program, "--help")
        self.assertEqual(done.returncode, 0, said(done))
        self.assertIn("usage:", done.stdout)
        return done.stdout

    def test_values_out_of_range_are_refused(self):
        for name, option, value in (
            ("paced", "--free-ratio", "1.5"),
            ("paced", "--allocate-size", "4Q"),
            ("multi_thread", "--threads", "0"),
            ("multi_process", "--leak-prob", "-1"),
            ("anomaly", "--anomaly-thread", "4"),
        ):
            with self.subTest(f"{name} {option} {value}"):
                done = run(*PYTHON, STRESS / f"{name}.py", option, value)
                self.assertEqual(done.returncode, 2, said(done))

    def test_basic_info_needs_no_gpu(self):
        done = run(SCRIPTS / "basic-info.sh")
        self.assertEqual((done.returncode, done.stderr), (0, ""), said(done))
        lines = dict(line.split(":", 1) for line in done.stdout.splitlines())
        wanted = {"Kernel", "Distribution", "CPU", "Memory", "GPU", "Driver"}
        self.assertLessEqual(wanted, set(lines))
        self.assertTrue(all(value.strip() for value in lines.values()), said(done))


if __name__ == "__main__":
    unittest.main()
