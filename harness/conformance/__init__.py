"""Checks that a plug-in keeps the contracts: `check_env`, `check_method`, `check_model`, each a list of findings.

    for finding in check_env(MyEnv):
        print(finding)

`harness doctor` prints them; the test suite runs them on everything that is registered, and on toys with one fault
each, which the check of that fault must find.
"""

from harness.conformance.env import check_env
from harness.conformance.findings import Finding
from harness.conformance.method import check_method
from harness.conformance.model import check_model

__all__ = ["Finding", "check_env", "check_method", "check_model"]
