#!/usr/bin/env bash
# Prints the home of a Java runtime that can run Spark, installing one with apt-get when none is found
# and it may; says on standard error what to install otherwise.
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }

# Spark asks for this incubator module at start: a runtime that has it is Java 17 or newer and complete.
# It is also what sets a distribution's JRE apart from the trimmed ones that some wheels carry.
runs_spark() {
    [[ -x $1/bin/java ]] && "$1/bin/java" --add-modules=jdk.incubator.vector -version >/dev/null 2>&1
}

candidates() {
    local on_path
    if [[ -n ${JAVA_HOME:-} ]]; then printf '%s\n' "$JAVA_HOME"; fi
    if on_path=$(command -v java); then
        dirname "$(dirname "$(readlink -f "$on_path")")"
    fi
    # The newest first; Contents/Home is macOS.
    local home
    for home in /usr/lib/jvm/* /opt/java/* /opt/jdk* "$HOME"/.sdkman/candidates/java/* \
        /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        printf '%s\n' "$home"
    done | sort -rV
}

find_java() {
    local home
    while read -r home; do
        if runs_spark "$home"; then
            printf '%s\n' "$home"
            return
        fi
    done < <(candidates)
    return 1
}

find_java && exit

readonly packages=(openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless)
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    say "No Java 17 or newer found; installing one with apt-get …"
    apt-get update -qq >&2
    for package in "${packages[@]}"; do
        # A package this release does not have is no reason to stop.
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "$package" >&2 </dev/null && find_java; then
            exit
        fi
    done
fi
say "Spark needs Java 17 or newer and none was found in JAVA_HOME, on PATH or in the usual folders;" \
    "install one (Debian and Ubuntu: sudo apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
exit 1
