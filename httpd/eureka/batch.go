package eureka

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ItemAction is what an item of a replication batch asks for.
type ItemAction uint8

// The actions of the protocol.
const (
	noAction ItemAction = iota // not given
	Register
	Heartbeat
	Cancel
	StatusUpdate
	DeleteStatusOverride
)

var itemActionNames = [...]string{noAction: "", Register: "Register", Heartbeat: "Heartbeat", Cancel: "Cancel",
	StatusUpdate: "StatusUpdate", DeleteStatusOverride: "DeleteStatusOverride"}

// String returns the word used on the wire, "" for noAction.
func (a ItemAction) String() string {
	if int(a) < len(itemActionNames) {
		return itemActionNames[a]
	}
	return ""
}

// Item is one element of a replication batch (upstream: ReplicationInstance).
type Item struct {
	Action     ItemAction
	App        string // upper case
	ID         string
	LastDirty  int64           // ms since the epoch; 0 means not given
	Overridden registry.Status // Unknown means no override, and is not written
	Status     registry.Status // only valid if HasStatus
	HasStatus  bool            // one of the five words was given
	Lease      *registry.Lease // for Register only, else nil
	// Invalid is why the Lease of an item that was read cannot be registered; nil if it can.
	Invalid error
}

// AppendBatch appends the body of a replication request. It uses only the protocol's keys: a peer drops the whole
// batch for one that it does not know.
func AppendBatch(dst []byte, items []Item) []byte {
	dst = append(dst, `{"replicationList":[`...)
	for n := range items {
		if n > 0 {
			dst = append(dst, ',')
		}
		item := &items[n]
		dst = AppendQuoted(append(dst, `{"appName":`...), item.App)
		dst = AppendQuoted(append(dst, `,"id":`...), item.ID)
		if item.LastDirty != 0 {
			dst = appendNumber(dst, `,"lastDirtyTimestamp":`, item.LastDirty)
		}
		if item.Overridden != registry.Unknown {
			dst = appendMember(dst, `,"overriddenStatus":`, item.Overridden.String())
		}
		if item.HasStatus {
			dst = appendMember(dst, `,"status":`, item.Status.String())
		}
		if item.Lease != nil {
			dst = appendInstanceObject(append(dst, `,"instanceInfo":`...), Format{}, item.Lease, item.Lease.RenewedAt, false)
		}
		dst = append(appendMember(dst, `,"action":`, item.Action.String()), '}')
	}
	return append(dst, "]}"...)
}

// Refusal returns the statusCode for an item that cannot be applied: 400 for an invalid instance or name, 500 (as
// upstream) for an item that lacks what its action needs. It returns 0 for an item that can be applied.
func (i *Item) Refusal() int {
	switch {
	case i.Action == noAction,
		i.Action == Register && i.Lease == nil && i.Invalid == nil,
		i.Action == StatusUpdate && !i.HasStatus,
		i.Action == DeleteStatusOverride && i.LastDirty == 0:
		return 500
	case i.Invalid != nil:
		return 400
	}
	return 0
}

// ItemResult is the response to one item (upstream: ReplicationInstanceResponse).
type ItemResult struct {
	Status  int             // statusCode, an HTTP status
	Lease   *registry.Lease // the stored instance, only with the 409 to a Heartbeat
	Renewed registry.Stamp  // of Lease
}

// AppendBatchResponse appends the response to a replication request: one result per item, in order.
func AppendBatchResponse(dst []byte, results []ItemResult) []byte {
	dst = append(dst, `{"responseList":[`...)
	for n, result := range results {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = appendNumber(dst, `{"statusCode":`, int64(result.Status))
		if result.Lease != nil {
			dst = appendInstanceObject(append(dst, `,"responseEntity":`...), Format{}, result.Lease, result.Renewed, false)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// maxBatchItems is how many items a replication batch may have. Upstream's servers send 250.
const maxBatchItems = 1000

// ErrTooManyItems says that a replication batch has more than maxBatchItems.
var ErrTooManyItems = fmt.Errorf("the batch has more than %d items; send them in several", maxBatchItems)

// DecodeBatch reads the body of a replication request, as strictly as upstream: one unknown key or action refuses the
// whole batch with ErrUnparsable, and too many items with ErrTooManyItems, before they are in memory. An instance that
// cannot be registered only spoils its own item.
func DecodeBatch(body []byte) ([]Item, error) {
	s := newScanner(body)
	items := []Item{}
	found := false
	for m := s.object(); m.next(); {
		if string(m.key) != "replicationList" {
			return nil, unparsable("unknown key %q in a replication batch", clip(m.key))
		}
		found = true
		for e := s.array(); e.next(); {
			if len(items) == maxBatchItems {
				return nil, ErrTooManyItems
			}
			items = append(items, s.item())
		}
	}
	if err := s.expectEnd(); err != nil {
		return nil, err
	}
	if !found {
		return nil, unparsable(`JSON lacks the key "replicationList"`)
	}
	return items, nil
}

func (s *scanner) item() Item {
	var item Item
	var instance []byte
	for m := s.object(); m.next(); {
		if string(m.key) == "instanceInfo" {
			instance = s.raw()
			continue
		}
		text, given := s.scalar()
		s.failed(item.set(m.key, text, given))
	}
	if s.err != nil {
		return item
	}
	if item.Invalid = CheckApp(item.App); item.Invalid == nil {
		item.Invalid = CheckID(item.ID)
	}
	if item.Invalid == nil && item.Action == Register && instance != nil {
		item.Lease, item.Invalid = readReplicated(instance, item.App)
	}
	return item
}

// set sets a field to the text of its value; given is false for null.
func (i *Item) set(name, text []byte, given bool) (err error) {
	switch string(name) {
	case "appName":
		i.App = strings.ToUpper(string(text))
	case "id":
		i.ID = string(text)
	case "lastDirtyTimestamp":
		err = setTimestamp(&i.LastDirty, text)
	case "overriddenStatus":
		i.Overridden = parseStatus(text)
	case "status":
		i.Status, i.HasStatus = registry.ParseStatus(string(text))
	case "action":
		action := slices.Index(itemActionNames[:], string(text))
		if i.Action = ItemAction(action); action < 0 {
			err = unparsable("action %q: it must be one of %q", clip(text), itemActionNames[1:])
		}
	default:
		return unparsable("unknown key %q in an item of a replication batch", clip(name))
	}
	if err != nil {
		return unparsable("%s: %w", name, err)
	}
	return nil
}

// readReplicated reads an item's bare instance, or returns nil without one.
func readReplicated(object []byte, app string) (*registry.Lease, error) {
	s := scanner{data: object}
	if s.null() {
		return nil, nil
	}
	d := s.instance()
	if s.err != nil {
		return nil, s.err
	}
	if _, err := d.register(app); err != nil {
		return nil, err
	}
	return d.finish(), nil
}

// DecodeBatchResponse reads a peer's response to a replication request. It ignores unknown parts. The error is
// ErrUnparsable.
func DecodeBatchResponse(body []byte) ([]ItemResult, error) {
	s := newScanner(body)
	var results []ItemResult
	s.member("responseList", func() {
		s.each(func() { results = append(results, s.itemResult()) })
	})
	if err := s.expectEnd(); err != nil {
		return nil, err
	}
	return results, nil
}

func (s *scanner) itemResult() ItemResult {
	var result ItemResult
	for m := s.object(); m.next(); {
		switch string(m.key) {
		case "statusCode":
			text, _ := s.scalar()
			var status int32
			if err := setInt32(&status, text); err != nil {
				s.failed(unparsable("statusCode: %w", err))
			}
			result.Status = int(status)
		case "responseEntity":
			if !s.null() {
				result.Lease = s.instance().finish()
				result.Renewed = result.Lease.RenewedAt
			}
		default:
			s.skip()
		}
	}
	return result
}
