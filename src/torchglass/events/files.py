"""Which files are meant: by a part of a path or a glob, by a package, and whether somebody installed them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache

PACKAGES = ("site-packages/", "dist-packages/")
"""Where an environment keeps what is installed."""
_SCRIPT = re.compile(r"/(bin|Scripts)/([^/.]+|[^/]+-script\.py)$")
"""What an installer writes to start a program: ``bin/pytest``."""


@lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    """Whether a file is part of an environment: of a package, or a script that starts one."""
    path = file.replace("\\", "/")
    return any(folder in path for folder in PACKAGES) or _SCRIPT.search(path) is not None


def base_name(file: str) -> str:
    """Without the folder; generated code may be named after where it comes from: ``<eval_with_key>.0 from …``."""
    return file.partition(" from ")[0] if file.startswith("<") else file.replace("\\", "/").rpartition("/")[2]


@lru_cache(maxsize=4096)
def fits_path(file: str, pattern: str) -> bool:
    """Whether a file is meant by a part of its path, or by a glob for all or the last of it."""
    return pattern in file or fnmatchcase(file, pattern) or fnmatchcase(base_name(file), pattern)


@lru_cache(maxsize=4096)
def in_package(file: str, package: str) -> bool:
    """Whether a file is in a package or module: ``transformers.utils``; also one that is not installed."""
    parts, wanted = module_parts(file), tuple(package.split("."))
    size = len(wanted)
    return any(parts[at : at + size] == wanted for at in range(len(parts) - size + 1))


def module_parts(file: str) -> tuple[str, ...]:
    """The folders and the name of a file, below the folder of installed packages where it is in one."""
    path = file.replace("\\", "/")
    for folder in PACKAGES:
        path = path.rpartition(folder)[2]
    return tuple(path.removesuffix(".py").split("/"))
