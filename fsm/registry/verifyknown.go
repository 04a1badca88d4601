package registry

import (
	"errors"
	"fmt"
)

// verifyKnown checks what is known of other servers.
func (f *Frozen) verifyKnown() error {
	return errors.Join(
		verifyNames("link", f.Links), verifyNames("sender", f.Senders), verifyNames("peer", f.Peers),
		f.verifyLinks(), f.verifySenders(), f.verifyPeers(),
	)
}

// verifyNames checks that a list has each name once, in ascending order.
func verifyNames[T named](what string, list []T) error {
	before := ""
	for _, entry := range list {
		if before >= entry.name() {
			return fmt.Errorf("%s %q after %q, want ascending names", what, entry.name(), before)
		}
		before = entry.name()
	}
	return nil
}

func (f *Frozen) verifyLinks() error {
	for _, l := range f.Links {
		if l.Since > l.Heard || l.Heard > f.Clock.Lease || l.Cut < 0 {
			return fmt.Errorf("link %s: heard since %d, last at %d, cut after %d, at a lease clock of %d", l.DC, l.Since, l.Heard, l.Cut, f.Clock.Lease)
		}
	}
	return nil
}

func (f *Frozen) verifySenders() error {
	for _, s := range f.Senders {
		if s.Name == "" || s.Heard.Lease > f.Clock.Lease {
			return fmt.Errorf("sender %q of %q: heard at %d, at a lease clock of %d", s.Name, s.DC, s.Heard.Lease, f.Clock.Lease)
		}
	}
	return nil
}

func (f *Frozen) verifyPeers() error {
	for _, p := range f.Peers {
		switch {
		case p.Cursor > f.Index || !p.Known && p.Cursor > 0:
			return fmt.Errorf("peer %s: cursor %d (known: %t), but the last change is %d", p.Name, p.Cursor, p.Known, f.Index)
		case p.Since.Lease > f.Clock.Lease:
			return fmt.Errorf("peer %s: paused or resumed at %d, at a lease clock of %d", p.Name, p.Since.Lease, f.Clock.Lease)
		}
	}
	return nil
}
