#!/usr/bin/env bash
# Finds a Java 17 or newer for Spark, or installs one from Debian's packages when it may; otherwise says in one line what
# to install and what is left out. Exit code 0 = there is one.
set -uo pipefail
left_out="${1:-what runs Spark}"
packages=(openjdk-17-jre-headless openjdk-21-jre-headless) # Debian and Ubuntu have one of them, by their age

has_java() {
  local java="${JAVA_HOME:+$JAVA_HOME/bin/}java" version
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [[ -n "$version" && "$version" -ge 17 ]]
}

install_one() {
  local package
  for package in "${packages[@]}"; do
    apt-get install -y -q "$package" >/dev/null 2>&1 && return
  done
  return 1
}

has_java && exit 0
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  echo "Spark needs Java 17 or newer and there is none here; installing ${packages[0]}" >&2
  { install_one || { apt-get update -q >/dev/null 2>&1 && install_one; }; } && has_java && exit 0
fi
echo "!!! LEFT OUT, FOR WANT OF JAVA 17 OR NEWER: $left_out. Install it (apt-get install ${packages[0]}) or set JAVA_HOME !!!" >&2
exit 1
