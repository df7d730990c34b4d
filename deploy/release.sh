#!/usr/bin/env bash
# Builds the image for amd64 and arm64, pushes it, and signs it together with the list of its packages.
#
#   REGISTRY=registry.example/ortoo VERSION=0.1.0 COSIGN_KEY=/run/secrets/cosign.key deploy/release.sh [--dry-run]
#
# Needs buildah (with binfmt for the other architecture) and cosign; run `make wheels sbom` first for build/wheels and the list.
# It prints the digest at the end. Give it to the chart (`image.tag=VERSION@DIGEST`), and verify it:
#   cosign verify --key cosign.pub REGISTRY@DIGEST
#   cosign verify-attestation --key cosign.pub --type cyclonedx REGISTRY@DIGEST
set -euo pipefail
cd "$(dirname "$0")/.."

: "${REGISTRY:?name the repository of the image, such as registry.example/ortoo}"
: "${VERSION:?name the version, such as 0.1.0}"
: "${COSIGN_KEY:?name the key that signs: a file, or a URL of a key service}"
image="$REGISTRY:$VERSION"
sbom=build/sbom.cdx.json
run() { echo "+ $*" >&2; if [ "${dry:-}" = "" ]; then "$@"; fi; }
dry=""
if [ "${1:-}" = "--dry-run" ]; then dry=1; fi
if [ -z "$dry" ] && [ ! -s "$sbom" ]; then echo "no $sbom; run make sbom" >&2; exit 1; fi

# The time of the last commit instead of now: the same sources and wheels give the same layers.
epoch=$(git log -1 --format=%ct)
run buildah manifest create --replace "$image"
for architecture in amd64 arm64; do
  run buildah build --platform "linux/$architecture" --timestamp "$epoch" --manifest "$image" \
    --label "org.opencontainers.image.version=$VERSION" --label "org.opencontainers.image.revision=$(git rev-parse HEAD)" \
    -f deploy/docker/Dockerfile .
done
run buildah manifest push --all --digestfile build/image.digest "$image" "docker://$image"
digest=$(if [ -n "$dry" ]; then echo "sha256:DIGEST"; else cat build/image.digest; fi)
run cosign sign --yes --key "$COSIGN_KEY" "$REGISTRY@$digest"
run cosign attest --yes --key "$COSIGN_KEY" --type cyclonedx --predicate "$sbom" "$REGISTRY@$digest"
echo "$REGISTRY@$digest"
