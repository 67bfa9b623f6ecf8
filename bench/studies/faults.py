"""An exception at every call of every site of a step, one at a time: what does it cost?

    python bench/studies/faults.py [--calls 3] [--scenario crowd]

The runs and the checks are those of `tests/runtime/engine/test_faults.py`, which tries a part of the sites at one call
each. Here all are tried, at their first call, at their last, and at some between; each once with a fault and, where a
function in Python is called, once with an interruption. Prints what is wrong, and fails if anything is. Takes minutes.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from runtime.engine.test_faults import new_sites, undisturbed, what_is_wrong
from runtime.fault_sites import Fault, Interrupt
from runtime.fault_traffic import SCENARIOS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3, help="of a site that are tried, at most")
    parser.add_argument("--scenario", choices=[one.__name__ for one in SCENARIOS], help="only this one; default: all")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    num_wrong = 0
    for scenario in SCENARIOS:
        if options.scenario not in (None, scenario.__name__):
            continue
        calls, sites = undisturbed(scenario)[0], new_sites(scenario)
        num_tried = 0
        for site in sites:
            most = max(options.calls - 1, 1)
            for at in sorted({1 + (calls[site] - 1) * part // most for part in range(options.calls)}):
                for error in (Fault, Interrupt) if site.is_python else (Fault,):
                    num_tried += 1
                    wrong = what_is_wrong(scenario, site, at, error)
                    if wrong:
                        num_wrong += 1
                        print(error.__name__, wrong)
        print(
            f"{scenario.__name__}: {len(sites)} sites that no scenario before it reaches, {num_tried} exceptions",
            flush=True,
        )
    if num_wrong:
        raise SystemExit(f"{num_wrong} exceptions cost more than one request")
    print("none costs more than one request")


if __name__ == "__main__":
    main()
