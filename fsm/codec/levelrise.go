package codec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reads is what a node says about its program, and about the level it writes.
type Reads struct {
	Version string // of the program
	Oldest  byte   // levels that it reads
	Newest  byte
	Since   int64 // when the node began to read Newest, ms since the epoch; restarts do not reset it
	Writes  byte  // the level that the node writes
	Fresh   bool  // the node began empty, and has not yet decided whether all others did
}

// OwnReads returns what a node of this program says.
func OwnReads(version string, since int64, writes byte) Reads {
	return Reads{Version: version, Oldest: Oldest, Newest: Newest, Since: since, Writes: writes}
}

// Reads reports whether the node reads a level.
func (r Reads) Reads(level byte) bool { return r.Oldest <= level && level <= r.Newest }

// LevelHeader is the HTTP header that tells other replicating servers what a server reads, even if they cannot read
// the message itself.
const LevelHeader = "X-Rollcall-Level"

// String returns the form of the header: 1 if the node is fresh, else 0; the level that it writes; the oldest and the
// newest that it reads; since when (ms since the epoch); and the program's version.
func (r Reads) String() string {
	fresh := 0
	if r.Fresh {
		fresh = 1
	}
	return fmt.Sprintf("%d %d %d %d %d %s", fresh, r.Writes, r.Oldest, r.Newest, r.Since, r.Version)
}

// ParseReads reads what String writes; ok is false for any other text.
func ParseReads(text string) (r Reads, ok bool) {
	fields := strings.SplitN(text, " ", 6)
	if len(fields) != 6 {
		return Reads{}, false
	}
	var fresh byte
	for i, to := range []*byte{&fresh, &r.Writes, &r.Oldest, &r.Newest} {
		n, err := strconv.ParseUint(fields[i], 10, 8)
		if err != nil {
			return Reads{}, false
		}
		*to = byte(n)
	}
	since, err := strconv.ParseInt(fields[4], 10, 64)
	r.Since, r.Version, r.Fresh = since, fields[5], fresh == 1
	return r, err == nil && fresh <= 1 && r.Oldest > 0 && r.Oldest <= r.Writes && r.Writes <= r.Newest
}

// NodeReads is a node of a cluster, or of a datacenter without consensus.
type NodeReads struct {
	Name  string
	Known bool // the node has said what it reads, not long ago
	Reads
}

// LevelPolicy decides when a level that all nodes read is written.
type LevelPolicy struct {
	Finalize Finalize      `key:"cluster.finalize" default:"auto" words:"auto manual" help:"when new formats are written after all nodes run a newer version: auto (cluster.finalize-after later) or manual (at rollcall upgrade finalize). Until then you can go back to the older version"`
	After    time.Duration `key:"cluster.finalize-after" default:"24h" min:"0s" help:"with cluster.finalize auto: how long all nodes must have run the newer version before its formats are written"`
}

// Finalize says who decides that a level is written.
type Finalize string

// The settings of cluster.finalize.
const (
	FinalizeAuto   Finalize = "auto"
	FinalizeManual Finalize = "manual"
)

// steady is how long all nodes must be seen to read a level before it is written: while nodes are replaced in turn,
// one may appear again in its old version.
const steady = 30 * time.Second

// LevelRise decides when the nodes of a cluster write the next level. It belongs to one goroutine.
type LevelRise struct {
	LevelPolicy
	// Fresh: this node began empty. If all nodes did, nobody can want to go back, so they immediately write all
	// levels that they all read, one after the other. It turns false when, with all nodes known, one of them did not
	// begin empty, or does not read the next level.
	Fresh bool
	since time.Time // since when every node has been seen to read the next level; zero: not now
}

// Observe takes what all nodes, including this one, read at a moment, and reports whether to write the next level
// now.
func (r *LevelRise) Observe(now time.Time, level byte, nodes []NodeReads) bool {
	if level == Newest {
		return false
	}
	lacking := Lacking(nodes, level+1)
	if r.Fresh && !slices.ContainsFunc(nodes, func(n NodeReads) bool { return !n.Known }) {
		if r.Fresh = lacking == "" && !slices.ContainsFunc(nodes, func(n NodeReads) bool { return !n.Fresh }); r.Fresh {
			return true
		}
	}
	if lacking != "" {
		r.since = time.Time{}
		return false
	}
	if r.since.IsZero() {
		r.since = now
	}
	due := r.Due(level, nodes)
	return now.Sub(r.since) >= steady && !due.IsZero() && !now.Before(due)
}

// Due returns when the next level will be written automatically if the nodes stay as they are, or zero if it will
// not.
func (r *LevelRise) Due(level byte, nodes []NodeReads) time.Time {
	if r.Finalize != FinalizeAuto || level == Newest || Lacking(nodes, level+1) != "" {
		return time.Time{}
	}
	var newest int64
	for _, n := range nodes {
		newest = max(newest, n.Since)
	}
	return time.UnixMilli(newest).Add(r.After)
}

// Finalizable returns a NotYet that says why an operator cannot have the next level written now, or nil.
func (r *LevelRise) Finalizable(now time.Time, level byte, nodes []NodeReads) error {
	switch lacking := Lacking(nodes, level+1); {
	case level == Newest:
		return NotYet(fmt.Sprintf("there is nothing to finalize: level %d is the newest that this version reads", level))
	case lacking != "":
		return NotYet(fmt.Sprintf("level %d needs all nodes at %s; %s", level+1, VersionOf(level+1), lacking))
	case r.since.IsZero() || now.Sub(r.since) < steady:
		return NotYet(fmt.Sprintf("all nodes must have been seen to read level %d for %v, which is not yet so: try again then", level+1, steady))
	}
	return nil
}

// NotYet says why the next level cannot be written yet.
type NotYet string

// Error implements error.
func (n NotYet) Error() string { return string(n) }

// Lacking names the nodes that do not read a level, or may not, in words; "" if all do.
func Lacking(nodes []NodeReads, level byte) string {
	var words []string
	for _, n := range nodes {
		switch {
		case !n.Known:
			words = append(words, n.Name+" cannot be asked")
		case !n.Reads.Reads(level):
			words = append(words, n.Name+" runs "+n.Version)
		}
	}
	return strings.Join(words, ", ")
}

// WrittenLevel returns the level that a cluster writes, to the knowledge of a node that writes own: others may already
// have applied the entry that raises the level.
func WrittenLevel(own byte, nodes []NodeReads) byte {
	for _, n := range nodes {
		own = max(own, n.Writes)
	}
	return own
}

// LevelRefusal returns why nodes that write a lower level do not perform an operation.
func LevelRefusal(nodes []NodeReads, level byte) string {
	if lacking := Lacking(nodes, level); lacking != "" {
		return fmt.Sprintf("needs all nodes at %s; %s", VersionOf(level), lacking)
	}
	return fmt.Sprintf("needs level %d, which all nodes read and none writes yet: rollcall upgrade finalize has it written, and rollcall upgrade status says when it is by itself", level)
}
