package registry

import "cmp"

// Version says which of two copies of an instance, on two servers, is the newer one: what the client
// says of itself by life, then lastDirtyTimestamp; what operators decided of it by life, then Edit.
// The two halves are compared, and merged, each for itself, so that an override set on one side of a
// cut and a registration on the other both survive it.
type Version struct {
	Life      uint32
	LastDirty int64  // ms by the client's clock
	Edit      uint32 // Lease.Edit
}

// Version is that of the lease's instance.
func (l *Lease) Version() Version {
	return Version{Life: l.Life, LastDirty: l.Instance.LastDirty, Edit: l.Edit}
}

// compareVersion compares what the client says of itself with another copy of it: below 0, l is older.
func (l *Lease) compareVersion(life uint32, dirty int64) int {
	return cmp.Or(cmp.Compare(l.Life, life), cmp.Compare(l.Instance.LastDirty, dirty))
}
