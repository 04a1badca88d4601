package replication

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of a comparison.
const (
	maxDigestApps    = 50_000 // applications of one question
	maxDigestEntries = 20_000 // instances of one answer, but for an application with more
	maxDigestAnswer  = 4 * maxMessage
)

// digestQuestion is the body of POST /v1/rollcall/replication/digest: how the asker's instances add up
// per application. It asks about the applications after After, up to Until.
type digestQuestion struct {
	Version    int    `json:"version"`
	Datacenter string `json:"datacenter"`
	Node       string `json:"node"`
	// Owner is the datacenter whose instances are compared: the asker's. Empty, between nodes of one
	// datacenter: all.
	Owner string                `json:"owner,omitempty"`
	After string                `json:"after,omitempty"` // empty: from the first
	Until string                `json:"until,omitempty"` // empty: to the last
	Apps  map[string]wireDigest `json:"apps"`
}

// covers says whether the question is about an application.
func (q *digestQuestion) covers(app string) bool {
	return app > q.After && (q.Until == "" || app <= q.Until)
}

// check says what makes a question of no use.
func (q *digestQuestion) check() error {
	switch {
	case q.Version != wireVersion:
		return versionError(q.Version)
	case !validName(q.Datacenter), !validName(q.Node):
		return malformed("datacenter and node must each be a name of 1 to %d bytes", maxName)
	case len(q.Apps) > maxDigestApps:
		return malformed("%d applications; at most %d may be compared at a time", len(q.Apps), maxDigestApps)
	case q.Owner != "" && q.Owner != q.Datacenter:
		return malformed("owner is %q; %q may ask about its own instances only", clip(q.Owner), q.Datacenter)
	}
	return nil
}

// digestAnswer holds the applications that differ, those too that the asker does not have, each with
// all its instances.
type digestAnswer struct {
	Apps map[string][]digestEntry `json:"apps"`
	// More: the answer was full; the next question begins after the last application of this one.
	More bool `json:"more"`
}

// digestEntry is one instance of the answerer.
type digestEntry struct {
	ID    string  `json:"id"`
	Life  uint32  `json:"life"`
	Dirty int64   `json:"dirty"`
	Edit  uint32  `json:"edit"`
	Sum   wireSum `json:"sum"`
}

func (e digestEntry) version() registry.Version {
	return registry.Version{Life: e.Life, LastDirty: e.Dirty, Edit: e.Edit}
}

// wireDigest is a registry.Digest, written [count,"sum"].
type wireDigest registry.Digest

// MarshalJSON implements json.Marshaler.
func (d wireDigest) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]any{d.Count, wireSum(d.Sum)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *wireDigest) UnmarshalJSON(data []byte) error {
	var sum wireSum
	parts := []any{&d.Count, &sum}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return malformed(`a digest has %d parts; it must be [count,"sum"]`, len(parts))
	}
	d.Sum = uint64(sum)
	return nil
}

// wireSum is a sum, written in hexadecimal: not every reader of JSON can keep 64 bits of a number.
type wireSum uint64

// MarshalText implements encoding.TextMarshaler.
func (s wireSum) MarshalText() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(s), 16), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *wireSum) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("sum %q: it must be up to 16 hexadecimal digits", clip(string(text)))
	}
	*s = wireSum(n)
	return nil
}
