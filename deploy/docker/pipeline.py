"""`ortoo-pipeline` as a file, because spark-submit starts files."""

import sys

from ortoo.spark.pipeline.app import main

sys.exit(main())
