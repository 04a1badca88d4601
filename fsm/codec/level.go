package codec

// release is the first one that reads a level.
type release struct{ version, brings string }

// broughtBy2 is the same in programs that stand for later versions.
const broughtBy2 = "bounds on what one operation sets in motion, one grace for sessions"

// VersionOf is the first version of Rollcall that reads a level.
func VersionOf(level byte) string {
	if int(level) < len(releases) {
		return releases[level].version
	}
	return "a version after " + releases[len(releases)-1].version
}

// BroughtBy says what needs a level, one that this program reads.
func BroughtBy(level byte) string { return releases[level].brings }
