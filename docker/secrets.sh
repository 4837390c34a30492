#!/bin/sh
# Make the two secrets of compose.yaml, once.  Usage: docker/secrets.sh [FOLDER]
# Containers read the files as users of their own, so what keeps them from others on this machine is their folder.
set -eu
folder="${1:-$(dirname "$0")/secrets}"
umask 077
mkdir -p "$folder"
for name in postgres_password ray_token; do
    if [ -s "$folder/$name" ]; then
        echo "kept $folder/$name"
        continue
    fi
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$folder/$name"
    chmod 444 "$folder/$name"
    echo "made $folder/$name"
done
