#!/usr/bin/env bash
# Runs before the other Airflow services: the metadata tables, and the password of the user admin.
set -euo pipefail

airflow db migrate

# Airflow's simple auth manager, for development, reads passwords from this file.
umask 077
python - <<'PYTHON'
import json
import os

with open(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"], "w") as passwords:
    json.dump({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}, passwords)
PYTHON
