//go:build skiplevel

package codec

// A program with the tag skiplevel stands, in tests of upgrades, for a version that does not read what the first one
// writes.
const (
	Oldest = 2
	Newest = 3
)

var releases = []release{1: {"0.1", "everything"}, 2: {"0.2", "notes"}, 3: {"0.3", "nothing"}}
