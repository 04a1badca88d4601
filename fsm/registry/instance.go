package registry

import (
	"bytes"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Status is an instance's status. The zero value is Unknown.
type Status uint8

// The statuses, by their numbers in the formats. A new one goes at the end, see docs/changing.md.
const (
	Unknown Status = iota
	Up
	Down
	Starting
	OutOfService

	statusCount int = iota
)

// statusWords are the words of the protocol. No other word may ever be emitted.
var statusWords = [statusCount]string{Unknown: "UNKNOWN", Up: "UP", Down: "DOWN", Starting: "STARTING", OutOfService: "OUT_OF_SERVICE"}

// Statuses returns every status in the order of the protocol's texts: UP first, UNKNOWN last.
func Statuses() []Status {
	all := make([]Status, 0, statusCount)
	for s := range Status(statusCount) {
		if s != Unknown {
			all = append(all, s)
		}
	}
	return append(all, Unknown)
}

// StatusWords returns the words of Statuses.
func StatusWords() []string {
	words := make([]string, 0, statusCount)
	for _, s := range Statuses() {
		words = append(words, s.String())
	}
	return words
}

// String returns the word used on the wire, upper case.
func (s Status) String() string {
	if int(s) < statusCount {
		return statusWords[s]
	}
	return statusWords[Unknown]
}

// ParseStatus returns the status of an exact upper-case word; ok is false for any other text.
func ParseStatus(word string) (s Status, ok bool) {
	if i := slices.Index(statusWords[:], word); i >= 0 {
		return Status(i), true
	}
	return Unknown, false
}

func (s *Status) fields(c *codec.Codec) { codec.Enum(c, s, Status(statusCount-1), "status") }

// Counts are numbers of instances by status.
type Counts [statusCount]int

// hashOrder is the lexicographic order of the words.
var hashOrder = slices.SortedFunc(slices.Values(Statuses()), func(a, b Status) int { return strings.Compare(a.String(), b.String()) })

// HashCode returns apps__hashcode: for each status with instances, in lexicographic order, NAME_COUNT_.
// Source: com.netflix.discovery.shared.Applications.getReconcileHashCode.
func (c Counts) HashCode() string {
	var hash []byte
	for _, s := range hashOrder {
		if c[s] > 0 {
			hash = append(append(hash, s.String()...), '_')
			hash = append(strconv.AppendInt(hash, int64(c[s]), 10), '_')
		}
	}
	return string(hash)
}

// Action says what the last change of an instance was (actionType on the wire).
type Action uint8

// The actions of the protocol. A re-registration is ActionAdded too.
const (
	ActionNone Action = iota
	ActionAdded
	ActionModified
	ActionDeleted
)

var actionNames = [...]string{ActionNone: "", ActionAdded: "ADDED", ActionModified: "MODIFIED", ActionDeleted: "DELETED"}

// String returns the word used on the wire, "" for ActionNone.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return ""
}

// Key names an instance. App is upper case; ID is case-sensitive and unique inside its application.
type Key = order.Key

// NewKey returns the key of an instance, with the application's name in upper case.
func NewKey(app, id string) Key { return Key{App: strings.ToUpper(app), ID: id} }

// Port is a port number and whether the instance listens there.
type Port struct {
	Number  uint16
	Enabled bool
	None    bool // the client gave -1, as programs without a web server do; Number is 0
}

// Given returns the number as the client gave it.
func (p Port) Given() int32 {
	if p.None {
		return -1
	}
	return int32(p.Number)
}

// Open returns the port's number, or 0 if the instance does not listen there.
func (p Port) Open() uint16 {
	if !p.Enabled {
		return 0
	}
	return p.Number
}

// PortFor returns the port where the instance listens, with TLS (secure) or without, or 0.
func (i *Instance) PortFor(secure bool) uint16 {
	if secure {
		return i.SecurePort.Open()
	}
	return i.Port.Open()
}

// MainPort returns the port to show for an instance where there is room for only one: the secure port only if the
// other is not open.
func (i *Instance) MainPort() (p Port, secure bool) {
	if i.Port.Open() == 0 && i.SecurePort.Enabled {
		return i.SecurePort, true
	}
	return i.Port, false
}

// noPort is the bit that encodes Port.None.
const noPort = 1 << 17

// fields walks a port as one number: twice its own, plus one if it is enabled, plus noPort if the client gave -1.
func (p *Port) fields(c *codec.Codec) {
	v := uint64(p.Number) << 1
	if p.Enabled {
		v |= 1
	}
	if p.None {
		v |= noPort
	}
	c.Uint64(&v)
	if !c.Reading() {
		return
	}
	if v >= 2*noPort {
		c.Fail("port %d", v>>1)
		v = 0
	}
	*p = Port{Number: uint16(v >> 1), Enabled: v&1 == 1, None: v&noPort != 0}
}

// Pair is one element of an instance's metadata, in the client's order.
type Pair = codec.Pair

// MapOf returns pairs as a map, or nil.
func MapOf(pairs []Pair) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[p.Key] = p.Value
	}
	return m
}

// MergePairs returns pairs with update merged in: a known key gets its new value in its old place, a new key comes
// last.
func MergePairs(pairs, update []Pair) []Pair {
	merged := slices.Clone(pairs)
	for _, p := range update {
		if at := slices.IndexFunc(merged, func(q Pair) bool { return q.Key == p.Key }); at >= 0 {
			merged[at] = p
			continue
		}
		merged = append(merged, p)
	}
	return merged
}

// The data center names of the protocol.
const (
	MyOwn   = "MyOwn"
	Netflix = "Netflix"
	Amazon  = "Amazon"
)

// DataCenter is an instance's dataCenterInfo. Metadata belongs to Amazon only.
type DataCenter struct {
	Name     string
	Metadata []Pair
}

// Value returns the metadata value of key, or "".
func (d DataCenter) Value(key string) string { return lookup(d.Metadata, key) }

// Defaults of a lease, in seconds, if the client gives no number or one below 1.
const (
	DefaultRenewalInterval = 30
	DefaultDuration        = 90
)

// Bounds of a lease, in seconds; a number outside is clamped, never refused (a client that gets a 400 for its
// registration believes the server is broken).
const (
	minDuration, maxDuration               = 3, 24 * 60 * 60
	minRenewalInterval, maxRenewalInterval = 1, 60 * 60
)

// Instance is what a client says about itself, plus the status and override that the registry decided. An Instance is
// immutable once it was given to Apply. Empty strings mean "not given".
type Instance struct {
	InstanceID      string // as given; see ID
	HostName        string
	App             string // upper case
	IPAddr          string
	SID             string // shown unless "", "na" or "unknown"
	Status          Status // as reported; in a View: as decided by the rules
	Overridden      Status // Unknown means none
	Port            Port
	SecurePort      Port
	CountryID       int32
	DataCenter      DataCenter
	RenewalInterval int32 // seconds; 0 means not given
	Duration        int32 // seconds; 0 means not given
	Metadata        []Pair
	AppGroup        string // upper case
	HomePageURL     string
	StatusPageURL   string
	HealthCheckURL  string
	SecureHealthURL string
	VIP             string // comma-separated
	SecureVIP       string // comma-separated
	ASG             string
	LastDirty       int64 // lastDirtyTimestamp, ms since the epoch by the client's clock; 0 means not given
}

// fields walks an instance.
func (i *Instance) fields(c *codec.Codec) {
	c.String(&i.InstanceID)
	c.String(&i.HostName)
	c.String(&i.App)
	c.String(&i.IPAddr)
	c.String(&i.SID)
	i.Status.fields(c)
	i.Overridden.fields(c)
	i.Port.fields(c)
	i.SecurePort.fields(c)
	c.Int32(&i.CountryID)
	c.String(&i.DataCenter.Name)
	c.Pairs(&i.DataCenter.Metadata)
	c.Int32(&i.RenewalInterval)
	c.Int32(&i.Duration)
	c.Pairs(&i.Metadata)
	c.String(&i.AppGroup)
	c.String(&i.HomePageURL)
	c.String(&i.StatusPageURL)
	c.String(&i.HealthCheckURL)
	c.String(&i.SecureHealthURL)
	c.String(&i.VIP)
	c.String(&i.SecureVIP)
	c.String(&i.ASG)
	c.Int64(&i.LastDirty)
}

// Equal reports whether two instances are equal in everything.
func (i *Instance) Equal(o *Instance) bool {
	var one, other [1024]byte // enough for most
	return i == o || bytes.Equal(i.append(one[:0], codec.Newest), o.append(other[:0], codec.Newest))
}

func (i *Instance) append(dst []byte, level byte) []byte {
	c := codec.Writer(dst, level)
	i.fields(&c)
	return c.Written()
}

// body walks an instance with its length in front. Entries are large, and a registration must not keep the rest of
// one alive.
func body(c *codec.Codec, i **Instance) {
	outer := c.Open()
	codec.Ptr(c, i).fields(c)
	c.Close(outer, "instance")
}

// ID returns the instance's id: instanceId, else the Amazon instance-id, else the host name
// (upstream: InstanceInfo.getId).
func (i *Instance) ID() string {
	if i.InstanceID != "" {
		return i.InstanceID
	}
	if i.DataCenter.Name == Amazon {
		if id := i.DataCenter.Value("instance-id"); id != "" {
			return id
		}
	}
	return i.HostName
}

// Key returns the instance's key.
func (i *Instance) Key() Key { return Key{App: i.App, ID: i.ID()} }

// Meta returns the metadata value of key, or "".
func (i *Instance) Meta(key string) string { return lookup(i.Metadata, key) }

func lookup(pairs []Pair, key string) string {
	for _, p := range pairs {
		if p.Key == key {
			return p.Value
		}
	}
	return ""
}

// ClampLease returns interval and duration in seconds, with defaults for numbers below one and the bounds applied,
// and whether a bound changed either.
func ClampLease(interval, duration int32) (i, d int32, clamped bool) {
	i, d = interval, duration
	if i <= 0 {
		i = DefaultRenewalInterval
	}
	if d <= 0 {
		d = DefaultDuration
	}
	ci := min(max(i, minRenewalInterval), maxRenewalInterval)
	cd := min(max(d, minDuration), maxDuration)
	return ci, cd, ci != i || cd != d
}

// after returns the next millisecond, or t itself if it is the last one, which a client may name. See Lease.outrank.
func after(t int64) int64 {
	if t == math.MaxInt64 {
		return t
	}
	return t + 1
}

// with returns the instance with the registry's decisions, or i itself if nothing differs.
func (i *Instance) with(status, override Status, dirty int64) *Instance {
	if i.Status == status && i.Overridden == override && i.LastDirty == dirty {
		return i
	}
	c := *i
	c.Status, c.Overridden, c.LastDirty = status, override, dirty
	return &c
}

// MaxVIPs is how many parts of a VIP address an instance can be found by: each part costs time when a registration is
// applied.
const MaxVIPs = 64

// weight returns roughly how many bytes the texts of an instance take.
func (i *Instance) weight() int {
	c := codec.Weigher()
	i.fields(&c)
	return c.Len() + pairWeight*(len(i.Metadata)+len(i.DataCenter.Metadata))
}

// Fingerprint returns a number that almost certainly differs if two instances do. It covers everything that their
// clients say (with the effective lease times), but not the status and the override. It is computed from the
// instance's encoding at level 1 of the formats, whatever the level of the state, because the state depends on it.
func (i *Instance) Fingerprint() uint64 {
	var space [1024]byte
	said := *i
	said.Status, said.Overridden = Unknown, Unknown
	said.RenewalInterval, said.Duration, _ = ClampLease(i.RenewalInterval, i.Duration)
	return hashOf(said.append(space[:0], 1))
}

// hashOf gives the same hash in every process, because servers compare digests.
func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// pairWeight is roughly how many bytes a pair takes besides its texts.
const pairWeight = 32
