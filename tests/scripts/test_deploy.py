"""The files in deploy/ ask for the same rights, and the description of the interface is whole."""

import json
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Needed by kernels before 6.6 only, and said to be.
OLD = {"SYS_ADMIN"}


def text(path):
    """The text of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def added(path):
    """The capabilities that a manifest adds."""
    block = re.search(r"\n( +)add:(.*?)\n(?!\1 )", text(path), re.DOTALL).group(2)
    return set(re.findall(r"\b[A-Z_]{3,}\b", block)) - OLD


class Rights(unittest.TestCase):
    """Capabilities, in each form."""

    def test_all_forms_have_the_same_capabilities(self):
        unit = re.search(r"^CapabilityBoundingSet=(.*)$", text("deploy/systemd/gpuprobe.service"), re.MULTILINE)
        wanted = {name.removeprefix("CAP_") for name in unit.group(1).split()} - OLD
        self.assertEqual(len(wanted), 7)
        self.assertEqual(added("deploy/kubernetes/gpuprobe.yaml"), wanted)
        self.assertEqual(added("deploy/helm/gpuprobe/templates/daemonset.yaml"), wanted)
        self.assertEqual(set(re.findall(r"--cap-add=(\w+)", text("docs/containers.md"))), wanted)

    def test_the_version_is_that_of_the_program(self):
        version = re.search(r'^version = "(.*)"$', text("Cargo.toml"), re.MULTILINE).group(1)
        self.assertIn(f"image: gpuprobe:{version}\n", text("deploy/kubernetes/gpuprobe.yaml"))
        chart = text("deploy/helm/gpuprobe/Chart.yaml")
        self.assertEqual(re.findall(r"(?im)^(?:app)?version: (.*)", chart), [version, version])


class OpenApi(unittest.TestCase):
    """docs/serve.openapi.json."""

    def test_it_has_every_path_that_is_answered(self):
        source = text("src/serve/http.rs")
        table = re.search(r"const ALIVE: .*?\n\];", source, re.DOTALL).group(0)
        paths = re.findall(r'"(/[^"]*)"', table)
        self.assertGreater(len(paths), 8)
        self.assertEqual(set(json.loads(text("docs/serve.openapi.json"))["paths"]), set(paths))


if __name__ == "__main__":
    unittest.main()
