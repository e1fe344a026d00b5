"""`python -m oldhost_simulator`."""

import sys

from oldhost_simulator.serve import main

sys.exit(main())
