"""Asks the interpreter that the package was installed for; run by it, in the package's folder.

    python installed.py imports   < module names, one a line > the ones that cannot be imported
    python installed.py shadows   < names at the app's top   > distributions that ship one of them

Distributions come before the app on the worker's path: one that ships a `shared` hides ours.
"""

import importlib
import sys
from importlib.metadata import distributions

TOP_LEVEL_ONLY = 1


def main() -> int:
    names = sys.stdin.read().split()
    sys.path.insert(0, "")
    found = unimportable(names) if sys.argv[1] == "imports" else shadows(set(names))
    print("\n".join(found))
    return 0


def unimportable(modules: list[str]) -> list[str]:
    """What cannot be imported, with the reason."""
    missing = []
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 -- whatever an import raises, the app would meet
            missing.append(f"{module}: {type(error).__name__}: {error}")
    return missing


def shadows(names: set[str]) -> list[str]:
    """Installed distributions with a module or package of one of these names at the top."""
    found = set()
    for distribution in distributions():
        for file in distribution.files or []:
            top = file.parts[0]
            if len(file.parts) == TOP_LEVEL_ONLY:
                top = top.partition(".")[0]
            if top in names:
                found.add(f"{distribution.metadata['Name']}: {top}")
    return sorted(found)


if __name__ == "__main__":
    sys.exit(main())
