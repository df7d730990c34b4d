#!/usr/bin/env bash
# The entry point of Spark's pods on Kubernetes: `driver ARGUMENTS`, `executor`, or any other command unchanged.
set -euo pipefail

# Some clusters assign a uid that the image does not have; Hadoop's login needs a name for it.
if ! getent passwd "$(id -u)" >/dev/null && [[ -w /etc/passwd ]]; then
  echo "spark:x:$(id -u):$(id -g):spark:$SPARK_HOME:/bin/false" >>/etc/passwd
fi

classpath="$SPARK_HOME/conf:$SPARK_HOME/jars/*"
case "${1:-}" in
  driver)
    shift
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      --deploy-mode client "$@"
    ;;
  executor)
    mapfile -t options < <(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p')
    exec tini -s -- java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classpath" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec tini -s -- "$@"
    ;;
esac
