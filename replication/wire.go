package replication

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// wireVersion is the version of the messages between Rollcall servers, of all kinds. A message of
// another version is refused as a whole; unknown keys of this one are ignored.
const wireVersion = 1

// Bounds of messages.
const (
	maxMessage = 8 << 20 // bytes of a message or of its answer; receivers answer 413 above it
	maxItems   = 10_000  // of one message: an item costs its receiver more memory than bytes on the wire
)

// messageHead is what every message of items begins with.
type messageHead struct {
	Version    int    `json:"version"`
	Datacenter string `json:"datacenter"` // the sender's
	Node       string `json:"node"`       // that sends
	Sender     string `json:"sender"`     // whose lease clock it is: Config.Sender
	// Incarnation is a random number that the sender draws whenever it begins to send.
	Incarnation uint64 `json:"incarnation,omitempty"`
	Clock       int64  `json:"clock"` // the sender's lease clock, ms
	// Sequence counts the messages of a node to a peer. It decides nothing: it tells, in logs, which of
	// two messages was sent first.
	Sequence uint64 `json:"sequence,omitempty"`
	// Heard says, between nodes of one datacenter, how long ago (ms) the sender heard others.
	Heard map[string]int64 `json:"heard,omitempty"`
}

// message is the body of POST /v1/rollcall/replication.
type message struct {
	messageHead
	Items wireItems `json:"items"`
}

// answer is what a message is answered with.
type answer struct {
	Datacenter string `json:"datacenter"`
	Node       string `json:"node"`
	// Late says by how much (ms) the message is older than the newest of its sender's incarnation.
	Late int64 `json:"late,omitempty"`
	// Ignored says in words what of the message's head was not noted; empty: all of it was.
	Ignored string       `json:"ignored,omitempty"`
	Results []itemResult `json:"results"` // one per item, in order
}

// itemResult is what became of one item. Status is one of HTTP's: 200 it holds now; 400 it is not
// valid; 404 a renewal of what is unknown here, or older than what the sender renewed; 409 what is
// stored here is newer, Register tells it; 410 it was removed here, Remove tells the record.
type itemResult struct {
	Status   int       `json:"status"`
	Error    string    `json:"error,omitempty"`
	Register *wireItem `json:"register,omitempty"`
	Remove   *wireItem `json:"remove,omitempty"`
}

// decodeMessage reads a message. Only what spoils all of it is an error, ErrMalformed; an item that is
// not valid is found when it is made an operation.
func decodeMessage(body []byte) (m message, err error) {
	if err := decode(body, &m); err != nil {
		return m, err
	}
	return m, m.check()
}

// check says what makes a message of no use.
func (h *messageHead) check() error {
	switch {
	case h.Version != wireVersion:
		return versionError(h.Version)
	case !validName(h.Datacenter), !validName(h.Node), !validName(h.Sender):
		return malformed("datacenter, node and sender must each be a name of 1 to %d bytes", maxName)
	case !validAge(h.Clock):
		return malformed("a clock of %d ms is not in 0 to %d, which is ten years: no lease clock has run for longer", h.Clock, int64(maxAge))
	case len(h.Heard) > maxHeard:
		return malformed("%d datacenters were heard; at most %d are believed", len(h.Heard), maxHeard)
	}
	for dc, age := range h.Heard {
		if !validName(dc) || !validAge(age) {
			return malformed("%q was heard %d ms ago", dc, age)
		}
	}
	return nil
}

// appendMessage appends a message whose items are encoded already.
func appendMessage(dst []byte, head messageHead, items [][]byte) ([]byte, error) {
	opening, err := encode(head)
	if err != nil {
		return nil, err
	}
	dst = append(dst, opening[:len(opening)-1]...)
	dst = append(dst, `,"items":[`...)
	dst = append(dst, bytes.Join(items, []byte{','})...)
	return append(dst, "]}"...), nil
}

// decode reads one JSON value and nothing after it.
func decode(body []byte, to any) error {
	if err := json.Unmarshal(body, to); err != nil {
		var known *malformedError
		if errors.As(err, &known) {
			return known
		}
		return malformed("%v", err)
	}
	return nil
}

// encode is json.Marshal without the escapes for HTML, which would make messages up to six times as
// long.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// malformedError is an ErrMalformed that says what is wrong.
type malformedError struct{ text string }

func (e *malformedError) Error() string { return e.text }

func (e *malformedError) Is(target error) bool { return target == ErrMalformed }

func malformed(format string, args ...any) error {
	return &malformedError{"malformed message: " + fmt.Sprintf(format, args...)}
}

func versionError(version int) error {
	return malformed("version %d is not known here; this node speaks version %d", version, wireVersion)
}

// readBounded reads all of r, which must not be longer than limit.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, malformed("more than %d bytes", limit)
	}
	return body, err
}

// wireItems are the items of a message. Reading refuses too many of them before it has them all, and
// goes on after one that has a value of the wrong type.
type wireItems []wireItem

// UnmarshalJSON implements json.Unmarshaler.
func (items *wireItems) UnmarshalJSON(data []byte) error {
	*items = nil // a second list of the same message replaces the first
	d := json.NewDecoder(bytes.NewReader(data))
	opening, err := d.Token()
	if err != nil {
		return err
	}
	if opening != json.Delim('[') {
		return malformed("items must be an array")
	}
	for d.More() {
		if len(*items) == maxItems {
			return malformed("more than %d items", maxItems)
		}
		*items = append(*items, decodeItem(d))
	}
	return nil
}

// decodeItem reads the next item of text that is known to be valid JSON.
func decodeItem(d *json.Decoder) wireItem {
	var item wireItem
	if err := d.Decode(&item); err != nil {
		return wireItem{err: err}
	}
	return item
}

// The status of an item's result.
const (
	itemDone    = 200
	itemInvalid = 400
	itemUnknown = 404
	itemOlder   = 409
	itemGone    = 410
)
