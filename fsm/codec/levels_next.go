//go:build nextlevel

package codec

// A program with the build tag nextlevel plays the next version in tests of upgrades.
const (
	Oldest = 1
	Newest = 4
)

var releases = append(released, release{"0.2", "notes"})
