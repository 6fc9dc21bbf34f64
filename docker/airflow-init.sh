#!/usr/bin/env bash
# Runs before the other Airflow services: the metadata tables, the pools that the DAGs use, the password
# of the user admin, the flights that the tenants' ingest DAGs load, and the shared store of the fleet DAG.
set -euo pipefail

airflow db migrate
airflow pools import /opt/airflow/dags/pools.json

# Airflow's simple auth manager, for development, reads passwords from this file.
umask 077
python - <<'PYTHON'
import json
import os

with open(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"], "w") as passwords:
    json.dump({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}, passwords)
PYTHON

cd /opt/ducklake
python -m scripts.fill_landing /lakes/landing
python -m airflow_provider_ducklake.lake.store init --root /lakes/store/ \
    --attach 'ducklake:postgres:host=postgres dbname=lakes user=lake'
