package kv

import "iter"

// Entry is a key's. Immutable.
type Entry struct {
	Key         string
	Value       []byte
	Flags       uint64
	Session     string // the holder; "": none
	LockIndex   uint64 // how often it was acquired by a new holder
	CreateIndex Index
	ModifyIndex Index
	// Fence is the Index of the last acquisition, which the holder's writes and acquiring again leave
	// as it is; 0: it was never acquired. It holds while there is a Session.
	Fence Index
}

// Session is one session. Immutable but for its last renewal, see View.Renewed.
type Session struct {
	ID            string
	Name          string
	Node          string // "": the cluster's logical node
	TTL           int64  // ms; 0: none
	TTLText       string
	LockDelay     int64 // ns
	Behavior      Behavior
	Checks        []string // legacy list, as given; nil: none was given
	NodeChecks    []string
	ServiceChecks []string
	CreateIndex   Index
	ModifyIndex   Index
	CreatedAt     int64 // lease clock, ms
	CreatedWall   int64 // ms since the epoch
}

// Permits is a lock or semaphore that somebody holds or waits for, or that a lock-delay blocks.
// Immutable.
type Permits struct {
	Kind        Kind // Lock or Semaphore
	Name        string
	Limit       uint32   // 1 for a lock
	Holders     []Holder // in the order of acquisition
	Queue       []Waiter // in the order in which permits will be given
	Delays      []int64  // ends of lock-delays (lease clock, ms), ascending; each keeps one permit back
	ModifyIndex Index
}

// Holder holds a permit.
type Holder struct {
	Session string
	Fence   Index // token: the Index of the acquisition
	Since   int64 // lease clock, ms
	Wall    int64 // the same moment, ms since the epoch
	Value   []byte
}

// Waiter waits for a permit.
type Waiter struct {
	Session string
	Since   int64 // lease clock, ms
	Until   int64 // lease clock, ms: it is passed over after that
	Value   []byte
}

// View is the state at one moment: immutable, safe for any number of readers. Each read returns the
// Index by which a blocking query for the same thing goes on (Consul's X-Consul-Index): it grows with
// every change of what is read, never goes back, and is never 0.
type View struct {
	index       Index
	lease       int64 // lease clock, ms
	established int64 // lease clock, ms: when grace began
	shown       *shown
}

// Index is that of the last change of anything in the view.
func (v *View) Index() Index { panic("not written") }

// Lease is the lease clock (ms) of the newest operation in the view.
func (v *View) Lease() int64 { panic("not written") }

// Get returns a key's entry, nil if there is none. The index is the entry's ModifyIndex; of an absent
// key that of the last write or deletion of any key, at least 1.
func (v *View) Get(key string) (*Entry, Index) { panic("not written") }

// List returns the entries whose keys begin with prefix, in byte order, and the highest of their
// ModifyIndexes and of the deletions under the prefix; for the empty prefix, and where there is
// neither, that of the last write or deletion of any key.
func (v *View) List(prefix string) ([]*Entry, Index) { panic("not written") }

// Keys returns the keys that begin with prefix, in byte order, with List's index. With a separator
// each is cut after the first one that follows the prefix, and each cut is listed once.
func (v *View) Keys(prefix, separator string) ([]string, Index) { panic("not written") }

// Len is the number of keys.
func (v *View) Len() int { panic("not written") }

// Read performs the operations of a transaction that writes nothing.
func (v *View) Read(ops []KeyOp) (entries []*Entry, errs []TxnError) { panic("not written") }

// Session returns a session, nil if there is none, and the sessions' index.
func (v *View) Session(id string) (*Session, Index) { panic("not written") }

// Sessions yields all sessions, by id; SessionIndex is their index: that of the last creation or end.
func (v *View) Sessions() iter.Seq[*Session] { panic("not written") }

// SessionIndex is the Index of the last creation or end of a session; 1 if there was none.
func (v *View) SessionIndex() Index { panic("not written") }

// Renewed is when (lease clock, ms) a session was last renewed, live: it may be newer than the view.
func (v *View) Renewed(s *Session) int64 { panic("not written") }

// Ends is when (lease clock, ms) a session's TTL and grace have passed if it is not renewed, live; 0:
// never.
func (v *View) Ends(s *Session) int64 { panic("not written") }

// Delayed says until when (lease clock, ms) a lock-delay keeps a key from being acquired; 0: it does not.
func (v *View) Delayed(key string) int64 { panic("not written") }
