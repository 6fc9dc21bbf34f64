#!/usr/bin/env bash
# Resolves requirements/dev.in into requirements/dev.txt: versions only, valid for every Python from 3.10
# on. Pins that still satisfy dev.in stay; LOCK_UPGRADE=1 takes the newest of everything.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly lock=requirements/dev.txt
resolved=$(mktemp)
trap 'rm -f "$resolved"' EXIT
if [[ -f $lock && -z ${LOCK_UPGRADE:-} ]]; then cp "$lock" "$resolved"; fi

"${UV:-.venv/bin/uv}" pip compile --quiet --universal --python-version 3.10 \
    --no-header --no-annotate --no-emit-index-url requirements/dev.in --output-file "$resolved"

{
    printf '# Made by `make lock` from requirements/dev.in; change that file, not this one.\n'
    cat "$resolved"
} >"$lock.new"
mv "$lock.new" "$lock"
