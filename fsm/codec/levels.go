//go:build !nextlevel && !skiplevel

package codec

// Oldest and Newest are the levels of the formats that this program reads. It writes at any of them.
const (
	Oldest = 1
	Newest = 2
)

// releases has, by level, the first version that reads it, and what the level brings.
var releases = []release{1: {"0.1", "everything"}, 2: {"0.1.1", broughtBy2}}
