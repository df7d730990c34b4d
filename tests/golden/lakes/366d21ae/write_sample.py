"""Write this sample with the code of git commit 366d21ae. README.md says how."""

import shutil
import sys
import tempfile
from pathlib import Path

import ortoo.spark
from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.running.settings import ArchiveSettings, LakeSettings, PipelineSettings
from tests.spark.sending import send, varied
from tests.spark.session import broker_of, spark_session

TOPIC = "orders"
MESSAGES = 40
SMALL = {"STORE_SEGMENT_BYTES": 1 << 16, "STORE_HEADROOM_BYTES": 0}


def main(target: Path) -> None:
    """Archive one topic into two lakes, and keep the lakes, their checkpoints and the cluster's data."""
    sys.stdout.write(f"{ortoo.spark.__file__}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with broker_of(folder / "cluster", enodes=1, environ={"enode": SMALL}) as broker:
            broker.client.admin.create_topic(TOPIC, queue_count=2)
            send(broker, TOPIC, varied(MESSAGES))
            with spark_session(folder / "spark") as spark:
                for kind in ("delta", "parquet"):
                    settings = PipelineSettings(
                        address=broker.address,
                        lake=LakeSettings(str(target / kind), kind),
                        archive=ArchiveSettings(topics=(TOPIC,), max_offsets_per_trigger=MESSAGES // 2),
                    )
                    outcome = archive(spark, settings, lambda line: None, once=True)
                    sys.stdout.write(f"{kind}: {outcome}\n")
            for role in (*broker.cluster.enodes, broker.cluster.namesrv):
                broker.run(role.stop())
                shutil.copytree(role.folder, target / role.folder.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
