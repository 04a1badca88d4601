package fsm

import (
	"encoding/binary"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func appendContact(dst []byte, op registry.Contact) []byte {
	dst = appendString(appendString(dst, op.DC), op.Sender)
	dst = appendInt64(binary.AppendUvarint(dst, op.Incarnation), op.Clock)
	return appendInt64(appendInt64(dst, op.Cut), op.Age)
}

func (d *decoder) contact() registry.Contact {
	return registry.Contact{
		DC:          d.string(),
		Sender:      d.string(),
		Incarnation: d.uvarint(),
		Clock:       d.int64(),
		Cut:         d.int64(),
		Age:         d.int64(),
	}
}

func appendLink(dst []byte, l registry.Link) []byte {
	dst = appendInt64(appendString(dst, l.DC), l.Heard)
	return appendInt64(appendInt64(dst, l.Since), l.Cut)
}

func (d *decoder) link() registry.Link {
	return registry.Link{DC: d.string(), Heard: d.int64(), Since: d.int64(), Cut: d.int64()}
}

func appendSender(dst []byte, s registry.Sender) []byte {
	dst = binary.AppendUvarint(appendString(appendString(dst, s.Name), s.DC), s.Incarnation)
	return appendStamp(appendInt64(dst, s.Clock), s.Heard)
}

func (d *decoder) sender() registry.Sender {
	return registry.Sender{Name: d.string(), DC: d.string(), Incarnation: d.uvarint(), Clock: d.int64(), Heard: d.stamp()}
}

func appendPeer(dst []byte, p registry.PeerState) []byte {
	dst = binary.AppendUvarint(appendString(dst, p.Name), uint64(p.Cursor))
	dst = appendBool(appendBool(dst, p.Known), p.Paused)
	return appendStamp(appendAct(dst, p.By), p.Since)
}

func (d *decoder) peer() registry.PeerState {
	return registry.PeerState{
		Name:   d.string(),
		Cursor: d.index(),
		Known:  d.bool(),
		Paused: d.bool(),
		By:     d.act(),
		Since:  d.stamp(),
	}
}
