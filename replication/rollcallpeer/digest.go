package rollcallpeer

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Digests is the body of POST /v1/rollcall/replication/digest: how the asker's instances add up per application. It
// asks about the applications after After, up to Until.
type Digests struct {
	Datacenter string
	Node       string
	// Owner is the datacenter whose instances are compared: the asker's. It is empty between nodes of one datacenter,
	// which compare all.
	Owner string
	After string // from the first if empty
	Until string // to the last if empty
	Apps  map[string]registry.Digest
}

func (d *Digests) fields(c *codec.Codec) {
	c.String(&d.Datacenter)
	c.String(&d.Node)
	c.String(&d.Owner)
	c.String(&d.After)
	c.String(&d.Until)
	sorted(c, &d.Apps, maxApps, func(one *registry.Digest, c *codec.Codec) {
		c.Uint32(&one.Count)
		c.Uint64(&one.Sum)
	})
}

// check returns what makes a question useless.
func (d *Digests) check() error {
	switch {
	case !validName(d.Datacenter), !validName(d.Node):
		return malformed("datacenter and node must each be a name of 1 to %d bytes", maxName)
	case d.Owner != "" && d.Owner != d.Datacenter:
		return malformed("owner is %q; %q may ask about its own instances only", clip(d.Owner), d.Datacenter)
	}
	return nil
}

// covers reports whether the question is about an application.
func (d *Digests) covers(app string) bool {
	return app > d.After && (d.Until == "" || app <= d.Until)
}

// differences is the reply to Digests: the applications that differ, those too that the asker does not have, each with
// all its instances at the server that replies.
type differences struct {
	Apps map[string][]Copy
	// More is set if the reply was full; the next question starts after the last application of this one.
	More bool
}

func (d *differences) fields(c *codec.Codec) {
	const least = 5 // bytes of a copy
	sorted(c, &d.Apps, maxCompared, func(copies *[]Copy, c *codec.Codec) { codec.List(c, copies, least, (*Copy).fields) })
	c.Bool(&d.More)
}

func (d *differences) check() error { return nil }

// Copy is one instance at the server that replies.
type Copy struct {
	ID      string
	Version registry.Version
	Sum     uint64 // registry.Lease.Sum
}

func (i *Copy) fields(c *codec.Codec) {
	c.String(&i.ID)
	c.Uint32(&i.Version.Life)
	c.Int64(&i.Version.LastDirty)
	c.Uint32(&i.Version.Edit)
	c.Uint64(&i.Sum)
}
