"""`python -m ortoo.spark.pipeline` is `ortoo-pipeline`, for spark-submit."""

import sys

from ortoo.spark.pipeline.app import main

sys.exit(main())
