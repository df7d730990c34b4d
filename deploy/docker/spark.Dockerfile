# The image for Spark: pyspark with a Java, the data source and the pipeline jobs. Driver and executors use the same image.
#
#   docker build -f deploy/docker/spark.Dockerfile -t ortoo-spark .
#
# Without a package registry: `make wheels`, then --build-arg PIP_OPTIONS="--no-index --find-links /src/build/wheels".
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG PIP_OPTIONS=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python3 -m venv /opt/ortoo
WORKDIR /tmp/src
RUN --mount=type=bind,target=/src \
    cp -r /src/constraints.txt /src/libs . \
    && /opt/ortoo/bin/pip install ${PIP_OPTIONS} -c constraints.txt hatchling \
    && /opt/ortoo/bin/pip install ${PIP_OPTIONS} -c constraints.txt --no-build-isolation \
       ./libs/wire "./libs/common[zstd,lz4]" ./libs/client "./libs/spark[lake]" \
    && /opt/ortoo/bin/pip uninstall --yes hatchling pathspec trove-classifiers pluggy pip \
    && rm -rf /tmp/src/*

FROM ${PYTHON_IMAGE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/ortoo /opt/ortoo
# Spark on Kubernetes starts pods through this script and expects it here; it ships inside pyspark's own package.
RUN ln -s "$(/opt/ortoo/bin/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')" /opt/spark \
    && mkdir -p /opt/app /opt/spark/work-dir && chown 185:185 /opt/spark/work-dir
COPY deploy/docker/spark-entrypoint.sh /opt/entrypoint.sh
COPY deploy/docker/pipeline.py /opt/app/pipeline.py
# numpy would start a spinning thread for each core.
ENV PATH=/opt/ortoo/bin:/opt/spark/bin:$PATH \
    SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/opt/ortoo/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/ortoo/bin/python \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1
WORKDIR /opt/spark/work-dir
USER 185:185
ENTRYPOINT ["/opt/entrypoint.sh"]
