//go:build skiplevel

package codec

// A program with the tag skiplevel stands, in tests of upgrades, for a version that does not read what this one
// writes.
const (
	Oldest = 3
	Newest = 4
)

var releases = []release{1: {"0.1", "everything"}, 2: {"0.1.1", broughtBy2}, 3: {"0.2", "notes"}, 4: {"0.3", "nothing"}}
