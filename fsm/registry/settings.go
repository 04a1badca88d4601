package registry

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// Settings decide how leases end. They travel in the Establish entry of each leadership and are part of the state, so
// that every node explains a lease alike, whatever its own file says. Each is a setting of the leading node (see
// package setting), and zero in entries written before it existed.
type Settings struct {
	// SelfPreservation lets it come on automatically.
	SelfPreservation bool `key:"self-preservation.enabled" default:"true" help:"withhold evictions while too few leases are renewed (enableSelfPreservation); an operator's hold works even if this is off"`
	// Threshold is the share of fresh leases at or below which self-preservation comes on.
	Threshold Share `key:"self-preservation.renewal-percent-threshold" default:"0.85" help:"share of fresh leases, 0 to 1, at or below which evictions are withheld; 1 minus it is the share of the registry that one round may evict (renewalPercentThreshold); 1: nothing is ever evicted; 0 without self-preservation: all at once"`
	// Population is the least number of counted leases at which self-preservation comes on.
	Population uint32 `key:"self-preservation.min-instances" default:"10" max:"1000000" help:"fewest counted leases at which evictions are withheld"`
	// Bound is how long (ms of lease clock) self-preservation stays on before it is released, unless an operator
	// acts.
	Bound int64 `key:"self-preservation.max-duration" default:"1h" min:"1s" zero:"for ever" unit:"ms" help:"how long evictions are withheld unless an operator decides otherwise"`
	// Expectation lets upstream's formula decide instead, without population and bound.
	Expectation bool `key:"eureka-compat.expectation" help:"use upstream's formula for self-preservation: last minute's renewals against the expected number (numberOfRenewsPerMinThreshold)"`
	// ExpectedInterval (s) below 1 means 30.
	ExpectedInterval uint32 `key:"eureka-compat.expected-client-renewal-interval" default:"30s" min:"1s" unit:"s" help:"time between two renewals of a client in that formula, whole seconds (expectedClientRenewalIntervalSeconds)"`
	// ExpectationUpdate (ms) is how often upstream's expectation is set to the number of leases.
	ExpectationUpdate int64 `key:"eureka-compat.renewal-threshold-update-interval" default:"15m" min:"1s" unit:"ms" help:"how often that formula's number of clients is updated to the number of instances (renewalThresholdUpdateIntervalMs)"`
	// DoubledLease gives a lease that was renewed two durations. The renewal time that is kept and shown stays the
	// true one.
	DoubledLease bool `key:"eureka-compat.doubled-lease" help:"a renewed lease lasts twice its duration (Lease.renew)"`
	// OnCut says what happens to the leases of other datacenters while the links to them are cut, in the notation of
	// package replication.
	OnCut string `key:"replication.on-cut" kind:"map" zero:"keep" help:"by datacenter or Eureka server: what happens to its instances whose leases run out while the link is cut: keep (the default), keep-for:1h, expire"`
}

// rows returns the settings, sorted by key.
func (s *Settings) rows() []setting.Setting {
	all := setting.Of(s)
	sort.Slice(all, func(i, j int) bool { return all[i].Key < all[j].Key })
	return all
}

// Fields walks the nonzero settings, sorted by key, each preceded by its key. A Threshold above the whole is written
// as the whole.
func (s *Settings) Fields(c *codec.Codec) {
	if c.Reading() {
		s.read(c)
		return
	}
	given := *s
	given.Threshold = min(given.Threshold, Whole)
	rows := slices.DeleteFunc(given.rows(), func(row setting.Setting) bool { return row.Value.IsZero() })
	c.Count(len(rows), 1)
	for _, row := range rows {
		c.Lasting(&row.Key)
		walkValue(c, row.Value)
	}
}

func (s *Settings) read(c *codec.Codec) {
	*s = Settings{}
	rows := s.rows()
	for range c.Count(0, 1) {
		var key string
		c.Lasting(&key)
		i := slices.IndexFunc(rows, func(row setting.Setting) bool { return row.Key == key })
		if i < 0 {
			c.Fail("setting %.60q is unknown, given twice or not in its order", key)
			return
		}
		walkValue(c, rows[i].Value)
		c.Confirm(!rows[i].Value.IsZero())
		rows = rows[i+1:]
	}
	if s.Threshold > Whole {
		c.Fail("share of %d millionths, want at most %d", s.Threshold, Whole)
		s.Threshold = 0
	}
}

// walkValue walks a nonzero setting: a boolean is true if its key is there.
func walkValue(c *codec.Codec, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Bool:
		if c.Reading() {
			v.SetBool(true)
		}
	case v.Kind() == reflect.Uint32:
		n := uint32(v.Uint())
		if c.Uint32(&n); c.Reading() {
			v.SetUint(uint64(n))
		}
	case v.Kind() == reflect.Int64:
		n := v.Int()
		if c.Int64(&n); c.Reading() {
			v.SetInt(n)
		}
	default:
		text := v.String()
		if c.Lasting(&text); c.Reading() {
			v.SetString(text)
		}
	}
}

// Share is a part of a whole, in millionths: the state holds no floating-point numbers.
type Share uint32

// Whole is a share of 1.
const Whole Share = 1_000_000

// DefaultSettings returns the settings that hold until a leader sets others. It reads them from the tags once.
var DefaultSettings = sync.OnceValue(setting.Default[Settings])

// of returns the share of n, rounded down: upstream's (int) (n * renewalPercentThreshold).
func (s Share) of(n int) int { return int(uint64(n) * uint64(s) / uint64(Whole)) }

// String writes a share as a decimal fraction, such as 0.85.
func (s Share) String() string {
	whole, rest := s/Whole, s%Whole
	if rest == 0 {
		return fmt.Sprint(uint32(whole))
	}
	return fmt.Sprintf("%d.%s", uint32(whole), strings.TrimRight(fmt.Sprintf("%06d", uint32(rest)), "0"))
}

// UnmarshalText implements encoding.TextUnmarshaler, the inverse of String. It rounds to millionths.
func (s *Share) UnmarshalText(text []byte) error {
	whole, part, _ := strings.Cut(string(text), ".")
	tenths, err := strconv.ParseUint(whole+(part + "0000000")[:7], 10, 64) // of millionths
	if err != nil || tenths > 10*uint64(Whole) || strings.Trim(part, "0123456789") != "" || len(text) == 0 {
		return fmt.Errorf("%q is not a share between 0 and 1, such as 0.85", text)
	}
	*s = Share((tenths + 5) / 10)
	return nil
}
