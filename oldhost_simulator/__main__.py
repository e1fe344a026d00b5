"""`python -m oldhost_simulator`."""

import sys

from oldhost_simulator.process import main

sys.exit(main())
