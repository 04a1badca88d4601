package backup

import (
	"crypto/sha256"
	"io"
	"runtime"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// partWeight is roughly the most bytes a part holds, unless a single record is larger. A restore makes each part an
// operation of the log, which may have 1 MiB.
const partWeight = 768 << 10

// Source is what a file is made from.
type Source struct {
	Registry *registry.View
	KV       *kv.View // taken at the same moment; nil without coordination
	Header   Header   // Level, Mode, Cluster, Node and Version; Write fills in the rest
}

// Write writes a file, and returns its header and its length in bytes. It blocks nobody, because views do not change.
func Write(w io.Writer, from Source) (Header, int64, error) {
	h := from.Header
	v := from.Registry
	h.Wall, h.Epoch, h.Index = v.Stamp().Wall, v.Epoch(), v.Index()
	h.Counts.Instances = v.Total()
	for range v.Nodes() {
		h.Counts.Nodes++
	}
	if k := from.KV; k != nil {
		h.Index = max(h.Index, k.Index())
		h.Counts.Keys, h.Counts.Sessions = k.Len(), k.SessionCount()
		h.Counts.Roles, h.Counts.Tokens = len(k.Access().Roles), len(k.Access().Tokens)
		for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
			for range k.AllPermits(kind) {
				h.Counts.Permits++
			}
		}
	}
	packer, err := newPacker()
	if err != nil {
		return h, 0, err
	}
	p := &parts{frames: &frames{w: w, sum: sha256.New()}, packer: packer, level: h.Level}
	p.write(append([]byte(magic), h.Level))
	c := codec.Writer(nil, h.Level)
	h.fields(&c)
	p.frame(c.Written(), seedOf(h.Level))
	p.addRegistry(v)
	p.addCoordination(from.KV)
	p.flush()
	p.frame(nil, 0) // the end: an empty frame, and the checksum of everything
	p.write(p.sum.Sum(nil))
	return h, p.n, p.err
}

// parts collects records into parts.
type parts struct {
	*frames
	packer *zstd.Encoder
	level  byte
	part   kv.Image
	weight int
}

func (p *parts) addRegistry(v *registry.View) {
	for n := range v.Nodes() {
		p.grow(n.Weight())
		p.part.Nodes = append(p.part.Nodes, n)
	}
	for l := range v.All() {
		p.grow(l.Weight())
		p.part.Instances = append(p.part.Instances, v.SavedOf(l))
	}
}

func (p *parts) addCoordination(k *kv.View) {
	if k == nil {
		return
	}
	for pair := range k.Pairs() {
		p.grow(pair.Weight())
		p.part.Pairs = append(p.part.Pairs, pair)
	}
	for s := range k.Sessions() {
		p.grow(s.Weight())
		p.part.Sessions = append(p.part.Sessions, s)
	}
	for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
		for permits := range k.AllPermits(kind) {
			saved := *permits // without its queue and its holders' values: waits do not outlive the state
			saved.Queue, saved.Delays, saved.Holders = nil, nil, slices.Clone(permits.Holders)
			for i := range saved.Holders {
				saved.Holders[i].Value = nil
			}
			p.grow(64 + len(saved.Name) + 64*len(saved.Holders))
			p.part.Permits = append(p.part.Permits, &saved)
		}
	}
	p.addAccess(k.Access().Saved())
}

// addAccess adds roles and tokens. They go into the first part.
func (p *parts) addAccess(all access.Content) {
	if all.Empty() {
		return
	}
	p.grow(1 + 18*len(all.Revoked))
	a := &p.part.Access
	a.Mode, a.Bootstrapped, a.Revoked = all.Mode, all.Bootstrapped, all.Revoked
	for _, r := range all.Roles {
		p.grow(r.Weight())
		p.part.Access.Roles = append(p.part.Access.Roles, r)
	}
	for _, k := range all.Tokens {
		p.grow(k.Weight())
		p.part.Access.Tokens = append(p.part.Access.Tokens, k)
	}
}

// grow makes room for a record of the given weight.
func (p *parts) grow(weight int) {
	if p.weight+weight > partWeight {
		p.flush()
	}
	p.weight += weight
}

// flush writes the records collected so far.
func (p *parts) flush() {
	if p.weight == 0 || p.err != nil {
		return
	}
	runtime.Gosched() // lets renewals run in between
	plain := p.part.Encode(p.level)
	runtime.Gosched()
	p.frame(p.packer.EncodeAll(plain, nil), 0)
	p.part, p.weight = kv.Image{}, 0
}

// Nothing returns an empty part at a level.
func Nothing(level byte) ([]byte, error) { return packed(kv.Image{}, level) }

// packed encodes an image as a part.
func packed(m kv.Image, level byte) ([]byte, error) {
	packer, err := newPacker()
	if err != nil {
		return nil, err
	}
	return packer.EncodeAll(m.Encode(level), nil), nil
}

func newPacker() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
}

// Narrow returns what a part has under a key prefix: the keys, and the sessions that delete their keys, because those
// decide whether a key comes back (kv.Lasting). It returns nil if there are no such keys.
func Narrow(part []byte, level byte, prefix string) ([]byte, error) {
	m, err := kv.Unpack(part)
	if err != nil {
		return nil, err
	}
	narrow := kv.Image{Pairs: pairsUnder(m.Pairs, prefix)}
	for _, s := range m.Sessions {
		if s.Behavior == kv.DeleteKeys {
			narrow.Sessions = append(narrow.Sessions, s)
		}
	}
	if len(narrow.Pairs)+len(narrow.Sessions) == 0 {
		return nil, nil
	}
	return packed(narrow, level)
}
