#!/bin/sh
# build.sh OUT MODULE@VERSION [PACKAGE [FLAG...]] builds a program from a published Go module as its authors do, except
# that what they replace by a folder beside the module is taken from its published module, too, and
# that the Go that is here builds it.
#
#   SOURCE  a checkout that is built instead of the module
#   ADD     a module that is needed newer than the module says
#   DRIVER  a file that is built inside the module, for packages that no other module can import
#   TEST    not empty: the package's tests are built
set -e
out=$(realpath -m "$1") module=$2 package=${3:-.} driver=${DRIVER:+$(realpath "$DRIVER")}
shift 2
[ $# -eq 0 ] || shift
GO=${GO:-go}
if [ -z "$SOURCE" ]; then
	SOURCE=$($GO mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	[ -n "$SOURCE" ] || { echo "$module cannot be had" >&2; exit 1; }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$SOURCE/." "$work"
chmod -R u+w "$work"
cd "$work"
sed -i -E '/=> *\.\.?\/|^toolchain /d' go.mod
rm -rf go.work vendor
export GOFLAGS=-mod=mod GOWORK=off
if [ -n "$driver" ]; then
	mkdir driver
	cp "$driver" driver/main.go
	package=driver/main.go
fi
[ -z "$ADD" ] || $GO get "$ADD"
if [ -n "$TEST" ]; then
	$GO test -c -trimpath -o "$out" "$@" "$package"
else
	$GO build -trimpath -o "$out" "$@" "$package"
fi
