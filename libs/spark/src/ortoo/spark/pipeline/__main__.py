"""`python -m ortoo.spark.pipeline` is `ortoo-pipeline`, for spark-submit."""

import sys

from ortoo.spark.pipeline.command import main

sys.exit(main())
