//go:build !nextlevel && !skiplevel

package codec

// Oldest and Newest are the levels of the formats that this program reads. It writes at any of them.
const (
	Oldest = 1
	Newest = 3
)

var releases = released
