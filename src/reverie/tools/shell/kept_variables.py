"""The variables that a command in the sandbox gets; ``confine.py`` imports this without the package."""

from __future__ import annotations

# The variables that a command gets: places, language, terminal. Any other may hold a key, or make a program run or load
# another one.
KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "LANG", "LANGUAGE", "TZ", "TZDIR", "COLUMNS", "LINES",
    "NO_COLOR", "LS_COLORS", "LOCALE_ARCHIVE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "VIRTUAL_ENV",
    "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "RBENV_ROOT", "ASDF_DIR", "ASDF_DATA_DIR", "RUSTUP_HOME", "CARGO_HOME",
    "GOPATH", "GOROOT", "JAVA_HOME",
)  # fmt: skip
