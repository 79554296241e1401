#!/usr/bin/env bash
# Shows the progress of "go build -v" every ten seconds: go build -v ... 2>&1 | hack/progress.sh NAME
name=$1 packages=0 next=10 doing=starting
SECONDS=0
while IFS= read -r line; do
	case $line in
	"go: downloading "*) doing="downloading modules" ;;
	"" | *[!-a-zA-Z0-9._~/]*) printf '%s\n' "$line" >&2 ;; # an error
	*) doing="$((packages += 1)) packages compiled" ;;
	esac
	if ((SECONDS >= next)); then
		printf '  %s: %s, %d s\n' "$name" "$doing" "$SECONDS"
		next=$((SECONDS + 10))
	fi
done
