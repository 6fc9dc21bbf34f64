#!/usr/bin/env bash
# Runs before the other Airflow services: the metadata tables, the pools that the DAGs use, and the
# password of the user admin.
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
