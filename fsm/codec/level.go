package codec

// release is the first version that reads a level, and what the level brings.
type release struct{ version, brings string }

// released lists the levels up to this version's. Programs that play later versions add theirs.
var released = []release{
	1: {"0.1", "everything"},
	2: {"0.1.1", "bounds on what one operation sets in motion, one grace for sessions"},
	3: {"0.1.2", "drains that end with a restart, overrides that outlive the lease, names of nodes without case, alias checks that follow what their tokens may read, checks that look where they were registered from, a client's registrations in their order and the status in its heartbeats, takeovers by peers that have the right, writes that the newest roles allow, new names without unseen characters, a share for each principal"},
}

// VersionOf returns the first version of Rollcall that reads a level.
func VersionOf(level byte) string {
	if int(level) < len(releases) {
		return releases[level].version
	}
	return "a version after " + releases[len(releases)-1].version
}

// BroughtBy returns what a level that this program reads brings.
func BroughtBy(level byte) string { return releases[level].brings }
