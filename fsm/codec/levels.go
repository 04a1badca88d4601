//go:build !nextlevel && !skiplevel

package codec

// Oldest and Newest bound the levels of the formats that this program reads and can write.
const (
	Oldest = 1
	Newest = 3
)

var releases = released
