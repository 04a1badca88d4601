//go:build nextlevel

package codec

// A program with the tag nextlevel stands for the next version in tests of upgrades.
const (
	Oldest = 1
	Newest = 3
)

var releases = []release{1: {"0.1", "everything"}, 2: {"0.1.1", broughtBy2}, 3: {"0.2", "notes"}}
