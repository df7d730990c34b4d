"""`ortoo-pipeline` as a file, because spark-submit starts files."""

import sys

from ortoo.spark.pipeline.command import main

sys.exit(main())
