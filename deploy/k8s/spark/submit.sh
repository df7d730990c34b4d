#!/usr/bin/env bash
# The archive by plain spark-submit, without an operator: submit.sh https://API-SERVER:6443 [IMAGE]
set -euo pipefail
server="${1:?usage: submit.sh https://API-SERVER:6443 [IMAGE]}"
image="${2:-ortoo-spark:0.1.0}"
label=app.kubernetes.io/name
template="$(dirname "$0")/driver-pod.yaml"

volume() {
  echo "--conf spark.kubernetes.$1.volumes.persistentVolumeClaim.lake.options.claimName=ortoo-lake"
  echo "--conf spark.kubernetes.$1.volumes.persistentVolumeClaim.lake.mount.path=/lake"
  echo "--conf spark.kubernetes.$1.label.$label=ortoo-pipeline"
}

# shellcheck disable=SC2046 # each line is two words
exec spark-submit --master "k8s://$server" --deploy-mode cluster --name ortoo-archive \
  --conf "spark.kubernetes.container.image=$image" \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
  --conf "spark.kubernetes.driver.podTemplateFile=$template" \
  --conf spark.executor.instances=2 --conf spark.executor.cores=2 \
  --conf spark.executor.memory=1g --conf spark.executor.memoryOverhead=900m \
  $(volume driver) $(volume executor) \
  local:///opt/app/pipeline.py archive --config /etc/ortoo/pipeline.toml
