#!/usr/bin/env bash
# Runs once, when PostgreSQL has made its data folder: a database for Airflow, one for the lakes' catalogs.
# The shared store has roles of its own, hence CREATEROLE.
set -euo pipefail

psql --username "$POSTGRES_USER" --no-psqlrc --set ON_ERROR_STOP=1 \
    --set airflow_password="$AIRFLOW_DB_PASSWORD" --set lake_password="$LAKE_DB_PASSWORD" <<'SQL'
CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;
CREATE ROLE lake LOGIN CREATEROLE PASSWORD :'lake_password';
CREATE DATABASE lakes OWNER lake;
REVOKE CONNECT ON DATABASE airflow FROM PUBLIC;
REVOKE CONNECT ON DATABASE lakes FROM PUBLIC;
SQL
