"""kafkatool measured beside Apache Kafka in one run."""

import os

# pip compiles what it installs. Where this is set, a source tree would be compiled anew by each process measured.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
