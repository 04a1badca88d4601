package api

// SessionRequest is the body that creates a session. Omitted fields have defaults.
type SessionRequest struct {
	Name      string `json:"name,omitempty"`
	TTL       string `json:"ttl,omitempty"`        // a duration
	LockDelay string `json:"lock_delay,omitempty"` // a duration
	Behavior  string `json:"behavior,omitempty"`   // release or delete
}

// Session is a session (GET /v1/rollcall/sessions).
type Session struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Node      string        `json:"node"`
	TTL       string        `json:"ttl"`        // a duration, as given; "" or "0s" if it never expires
	LockDelay string        `json:"lock_delay"` // a duration
	Behavior  string        `json:"behavior"`   // release or delete: what happens to its keys
	Created   int64         `json:"created"`
	AgeMS     int64         `json:"age_ms"`
	EndsInMS  int64         `json:"ends_in_ms"` // at least 1, until it ends unless it is renewed; 0 for no end
	Holds     []Acquisition `json:"holds"`
}

// Acquisition is something that a session holds.
type Acquisition struct {
	Kind  string `json:"kind"` // key, lock or semaphore
	Name  string `json:"name"`
	Fence uint64 `json:"fence"` // the token
}

// Destroyed is the response to the end of a session.
type Destroyed struct {
	Destroyed bool `json:"destroyed"`
}

// Permits is a lock or semaphore that sessions hold or wait for (GET /v1/rollcall/locks and
// /v1/rollcall/semaphores).
type Permits struct {
	Name    string   `json:"name"`
	Limit   int      `json:"limit"` // 1 for a lock
	Holders []Holder `json:"holders"`
	Queue   []Waiter `json:"queue"` // in the order in which permits will be given
	// DelaysMS are the remaining times of the lock-delays that hold permits back.
	DelaysMS []int64 `json:"delays_ms"`
}

// Holder holds a permit.
type Holder struct {
	Session string `json:"session"`
	Fence   uint64 `json:"fence"` // the token
	Since   int64  `json:"since"`
	Value   []byte `json:"value"` // as the session gave it
}

// Waiter waits for a permit.
type Waiter struct {
	Session  string `json:"session"`
	WaitedMS int64  `json:"waited_ms"`
	LeftMS   int64  `json:"gives_up_ms"` // until it is passed over
	Value    []byte `json:"value"`       // as the session gave it
}

// Acquired is the response to an acquisition.
type Acquired struct {
	Acquired bool     `json:"acquired"`
	Fence    uint64   `json:"fence,omitempty"` // the token
	Limit    int      `json:"limit"`
	Place    int      `json:"place,omitempty"` // in the queue, when the session joined; 0 if it did not
	Holders  []Holder `json:"holders,omitempty"`
}

// Released is the response to a session that gives a permit back, or a place in the queue.
type Released struct {
	Released bool `json:"released"`
}

// FenceState says whether an acquisition still holds (GET /v1/rollcall/fence/{key}).
type FenceState struct {
	Kind  string `json:"kind"` // key, lock or semaphore
	Name  string `json:"name"`
	Holds bool   `json:"holds"`
	Fence uint64 `json:"fence"` // token of the current holder; 0 without one
}
