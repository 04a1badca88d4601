package registry

// handles is the table of live leases: by slot, and by name. A slot is assigned at registration,
// kept over re-registration and freed at removal.
type handles struct {
	leases     []*Lease // by slot; nil where free
	slots      map[Key]uint32
	free       []uint32 // the last one is used first
	generation uint64   // the last one given out; never reset
}

func (t *handles) byKey(key Key) *Lease {
	if slot, ok := t.slots[key]; ok {
		return t.leases[slot]
	}
	return nil
}

func (t *handles) byHandle(h Handle) *Lease {
	if uint64(h.Slot) >= uint64(len(t.leases)) {
		return nil
	}
	if l := t.leases[h.Slot]; l != nil && l.Handle.Gen == h.Gen {
		return l
	}
	return nil
}

// assign returns the handle for a lease that is about to begin.
func (t *handles) assign() Handle {
	t.generation++
	if n := len(t.free); n > 0 {
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		return Handle{Slot: slot, Gen: t.generation}
	}
	t.leases = append(t.leases, nil)
	return Handle{Slot: uint32(len(t.leases) - 1), Gen: t.generation}
}

// put makes l the lease of its slot, and the slot known by its key; or renews the key's strings: they should
// be those of the present instance, not keep alive the ones of the first.
func (t *handles) put(l *Lease) {
	t.leases[l.Handle.Slot] = l
	t.slots[l.Key()] = l.Handle.Slot
}

func (t *handles) release(l *Lease) {
	delete(t.slots, l.Key())
	t.leases[l.Handle.Slot] = nil
	t.free = append(t.free, l.Handle.Slot)
}
