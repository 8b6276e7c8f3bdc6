#!/usr/bin/env bash
# Runs the official conformance suite against the go-sdk's conformance server, directly and through Headgate, and
# compares: every scenario that passes directly has to pass through Headgate. It needs Go and npm, and builds
# below .ci/cache. OUT holds what the suite said.
set -euo pipefail
cd "$(dirname "$0")"
npm ci --no-audit --no-fund --loglevel=error >/dev/null
modules=$PWD/node_modules
cd ../..
cache=$PWD/.ci/cache/conformance
out=${OUT:-$(mktemp -d)}
mkdir -p "$cache" "$out"

# The suite wants a newer node than some distributions have, so it brings its own.
suite() { "$modules/node/bin/node" "$modules/.bin/conformance" server "$@"; }

go build -o "$cache/headgate" ./cmd/headgate
go build -o "$cache/everything" github.com/modelcontextprotocol/go-sdk/conformance/everything-server

pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait' EXIT

# serve ERA STATELESS PORT: the server at PORT, and Headgate in front of it at PORT+1.
serve() {
	"$cache/everything" -http "127.0.0.1:$3" "-stateless=$2" >"$out/server-$1.log" 2>&1 &
	pids+=($!)
	cat >"$out/$1.yaml" <<-YAML
		listen: 127.0.0.1:$(($3 + 1))
		admin_listen: 127.0.0.1:$(($3 + 2))
		naming: {max_name_length: 128}
		upstreams: {every: {url: "http://127.0.0.1:$3", prefix: ""}}
	YAML
	"$cache/headgate" serve --config "$out/$1.yaml" >"$out/headgate-$1.log" 2>&1 &
	pids+=($!)
	for _ in $(seq 100); do
		curl -fs "http://127.0.0.1:$(($3 + 2))/readyz" >/dev/null && return
		sleep 0.1
	done
	echo "Headgate did not become ready; see $out/headgate-$1.log" >&2
	exit 1
}
serve legacy false 18310
serve modern true 18320

passed() { sed -n 's/^✓ \([^:]*\): .*/\1/p' "$1" | sort; }

failed=0
# compare VERSION PORT SUITE-ARGUMENTS…
compare() {
	local version=$1 port=$2
	shift 2
	suite --url "http://127.0.0.1:$port" "$@" >"$out/$version-direct.txt" 2>&1 || true
	suite --url "http://127.0.0.1:$((port + 1))/mcp" "$@" >"$out/$version-through.txt" 2>&1 || true
	local direct lost
	direct=$(passed "$out/$version-direct.txt" | wc -l)
	lost=$(comm -23 <(passed "$out/$version-direct.txt") <(passed "$out/$version-through.txt"))
	echo "$version: $direct scenarios pass directly, $(passed "$out/$version-through.txt" | wc -l) through Headgate"
	if [ "$direct" -eq 0 ] || [ -n "$lost" ]; then
		echo "not through Headgate:" $lost
		failed=1
	fi
}
compare 2025-06-18 18310 --suite all --spec-version 2025-06-18
compare 2025-11-25 18310 --requirements 2025-11-25
compare 2026-07-28 18320 --requirements 2026-07-28
echo "what the suite said is in $out"
exit $failed
