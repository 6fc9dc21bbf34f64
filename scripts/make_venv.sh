#!/usr/bin/env bash
# Makes .venv from requirements/dev.txt, or leaves it alone while nothing it was made from has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly venv=.venv
readonly lock=requirements/dev.txt
readonly oldest=10

say() { printf '%s\n' "$*" >&2; }
die() { say "make venv: $*"; exit 1; }

# The first interpreter that is new enough; PYTHON, when given, is the only candidate.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
        if "$candidate" -c "import sys; sys.exit(sys.version_info[:2] < (3, $oldest))" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python 3.$oldest or newer found (looked for: ${PYTHON:-python3, python3.13 … python3.10});" \
        "install one, or name it: make venv PYTHON=/path/to/python3"
}

# Debian and Ubuntu keep ensurepip, which venv needs, in a package of its own.
ensure_venv_module() {
    local python=$1 package
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        say "Installing $package with apt-get (Python's venv module is missing) …"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends "$package"; } >&2 </dev/null && return
        die "apt-get could not install $package; install it by hand, then run make again"
    fi
    die "Python's venv module is missing; install it (Debian and Ubuntu: sudo apt-get install $package)" \
        "and run make again"
}

# Progress for a person, silence for a log.
quiet=--quiet
if [[ -t 2 ]]; then quiet=; fi

# uv does the work when it can be had and can reach the packages; pip, which may be configured for a
# mirror that uv does not know, otherwise.
install() {
    if [[ -x $venv/bin/uv ]]; then
        VIRTUAL_ENV=$PWD/$venv "$venv/bin/uv" pip install ${quiet:+"$quiet"} --compile-bytecode "$@" \
            && return
        say "uv could not install; trying pip …"
    fi
    "$venv/bin/python" -m pip install ${quiet:+"$quiet"} --disable-pip-version-check "$@"
}

fingerprint() { cat "$@" | cksum; }

python=$(find_python)
requirements=$("$python" -V | cksum; fingerprint "$lock" requirements/bootstrap.txt "$0")
project=$(fingerprint pyproject.toml)

if ! { "$venv/bin/python" -c pass && [[ $requirements == "$(<$venv/.requirements)" ]]; } 2>/dev/null; then
    ensure_venv_module "$python"
    say "Making $venv with $("$python" -V) from $lock; this takes a few minutes the first time …"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -r requirements/bootstrap.txt || say "uv is not to be had; pip does its work."
    install -r "$lock"
    printf '%s\n' "$requirements" >$venv/.requirements
fi

# The package itself, editable, so that Airflow finds its entry points.
if [[ $project != "$(cat $venv/.project 2>/dev/null)" ]]; then
    install --no-deps --no-build-isolation --editable .
    printf '%s\n' "$project" >$venv/.project
fi
