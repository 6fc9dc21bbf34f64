"""Three tenants' lakes, loaded and maintained by Airflow and Spark: `make demo`."""

from __future__ import annotations

import sys
from pathlib import Path

# Started as a file, so the repository's root is not where Python looks.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.demo_support.main import main

if __name__ == "__main__":
    sys.exit(main())
