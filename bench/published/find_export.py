"""Exports a pool that a benchmark of the library left active, so that zdb takes it."""

from common import Zuse
from peers import run


def export(image):
    """Whether it could be exported; one that is exported already comes in and goes again."""
    try:
        run(Zuse.binary, "zpool", "import", "-f", "-d", image, "tank")
        run(Zuse.binary, "zpool", "export", "tank")
    except RuntimeError as error:
        print(f"  {error}")
        return False
    return True
