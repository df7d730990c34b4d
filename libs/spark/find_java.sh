#!/usr/bin/env bash
# Finds a Java 17 or newer for Spark, or installs one from Debian's packages when it may; otherwise says in one line what
# to install and what is left out. Exit code 0 = there is one.
set -uo pipefail
left_out="${1:-what runs Spark}"

has_java() {
  local java="${JAVA_HOME:+$JAVA_HOME/bin/}java" version
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [[ -n "$version" && "$version" -ge 17 ]]
}

has_java && exit 0
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  echo 'no Java 17 here; installing openjdk-17-jre-headless' >&2
  { apt-get install -y -q openjdk-17-jre-headless || { apt-get update -q && apt-get install -y -q openjdk-17-jre-headless; }; } >/dev/null 2>&1
  has_java && exit 0
fi
echo "!!! NO JAVA 17: $left_out are LEFT OUT. Install one: apt-get install openjdk-17-jre-headless (or set JAVA_HOME) !!!" >&2
exit 1
