//go:build skiplevel

package codec

// A program with the build tag skiplevel plays, in tests of upgrades, a version that does not read what this one
// writes.
const (
	Oldest = 4
	Newest = 5
)

var releases = append(released, release{"0.2", "notes"}, release{"0.3", "nothing"})
