#!/bin/sh
# pgJDBC against a server: dev/clients/jdbc/run.sh postgresql.jar. The server is in PGHOST, …; with
# its certificate in PGSSLROOTCERT it is spoken to over TLS. Needs a JDK.
set -u
here=$(cd "$(dirname "$0")" && pwd)
jar=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
url="jdbc:postgresql://$PGHOST:$PGPORT/$PGDATABASE?user=$PGUSER&password=${PGPASSWORD:-}"
if [ -n "${PGSSLROOTCERT:-}" ]; then
    url="$url&sslmode=verify-full&sslrootcert=$PGSSLROOTCERT"
fi
javac -cp "$jar" -d "$out" "$here"/*.java || exit
java -cp "$out:$jar" Reflect "$url"
reflected=$?
java -cp "$out:$jar" Use "$url" && exit "$reflected"
