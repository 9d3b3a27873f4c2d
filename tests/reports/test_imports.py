"""Tests that the reports need no JAX."""

import subprocess
import sys


def test_reports_import_no_jax():
    code = (
        "import importlib, pkgutil, sys\n"
        "import spo.reports\n"
        "modules = [info.name for info in pkgutil.walk_packages(spo.reports.__path__, 'spo.reports.')]\n"
        "assert 'spo.reports.figures' in modules, modules\n"
        "for module in modules:\n"
        "    importlib.import_module(module)\n"
        "    assert 'jax' not in sys.modules, module\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
