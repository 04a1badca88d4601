//go:build skiplevel

package codec

// A program with the tag skiplevel stands, in tests of upgrades, for a version that does not read what this one
// writes.
const (
	Oldest = 4
	Newest = 5
)

var releases = append(released, release{"0.2", "notes"}, release{"0.3", "nothing"})
