#!/bin/sh
# pgJDBC's metadata against a server: dev/clients/jdbc/run.sh 'jdbc:postgresql://host:port/thalweg?user=…'
# Needs a JDK and Maven, which fetches the driver once.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=42.7.4
out=${TMPDIR:-/tmp}/thalweg-jdbc
mkdir -p "$out"
jar=$out/postgresql-$version.jar
[ -f "$jar" ] || mvn -q dependency:copy -Dartifact=org.postgresql:postgresql:$version -DoutputDirectory="$out"
javac -cp "$jar" -d "$out" "$here/Reflect.java"
exec java -cp "$out:$jar" Reflect "$1"
