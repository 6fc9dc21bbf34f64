#!/usr/bin/env bash
# Runs the demo with an environment of its own under .demo/, so that no other Airflow is touched.
# Usage: scripts/demo.sh [sqlite|duckdb|postgres] [arguments of scripts/demo.py]
set -euo pipefail
cd "$(dirname "$0")/.."

catalog=${1:-sqlite}
shift || true
case $catalog in
sqlite | duckdb | postgres) ;;
*)
    printf '%s\n' "CATALOG=$catalog is not known; use sqlite, duckdb or postgres." >&2
    exit 2
    ;;
esac

JAVA_HOME=$(scripts/ensure_java.sh)
export JAVA_HOME
export PATH=$PWD/.venv/bin:$JAVA_HOME/bin:$PATH
export VIRTUAL_ENV=$PWD/.venv
export AIRFLOW_HOME=$PWD/.demo/airflow
export AIRFLOW__CORE__DAGS_FOLDER=$PWD/dags
export AIRFLOW__CORE__LOAD_EXAMPLES=False
# A Spark of the machine's own must not mix its jars with those of .venv.
unset SPARK_HOME SPARK_CONF_DIR PYTHONPATH
export PYSPARK_PYTHON=$PWD/.venv/bin/python
export SPARK_LOCAL_IP=127.0.0.1
mkdir -p "$AIRFLOW_HOME"

exec .venv/bin/python scripts/demo.py --catalog "$catalog" "$@"
