package fsm

import (
	"encoding/binary"
	"math"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The numbers of the registry's enumerations are part of the formats. Never renumber one.
const (
	lastStatus  = byte(registry.OutOfService)
	lastAction  = byte(registry.ActionDeleted)
	lastOrigin  = byte(registry.RemoteDC)
	lastOutcome = byte(registry.CheckTaken)
	lastKind    = byte(registry.Evicted) // of a removal: Hidden is the kind of a live instance
	lastState   = byte(registry.PreservationHeld)
	lastEvent   = byte(registry.EventCeded)
)

func appendInstance(dst []byte, i *registry.Instance) []byte {
	dst = appendString(dst, i.InstanceID)
	dst = appendString(dst, i.HostName)
	dst = appendString(dst, i.App)
	dst = appendString(dst, i.IPAddr)
	dst = appendString(dst, i.SID)
	dst = append(dst, byte(i.Status), byte(i.Overridden))
	dst = appendPort(dst, i.Port)
	dst = appendPort(dst, i.SecurePort)
	dst = appendInt32(dst, i.CountryID)
	dst = appendString(dst, i.DataCenter.Name)
	dst = appendPairs(dst, i.DataCenter.Metadata)
	dst = appendInt32(dst, i.RenewalInterval)
	dst = appendInt32(dst, i.Duration)
	dst = appendPairs(dst, i.Metadata)
	dst = appendString(dst, i.AppGroup)
	dst = appendString(dst, i.HomePageURL)
	dst = appendString(dst, i.StatusPageURL)
	dst = appendString(dst, i.HealthCheckURL)
	dst = appendString(dst, i.SecureHealthURL)
	dst = appendString(dst, i.VIP)
	dst = appendString(dst, i.SecureVIP)
	dst = appendString(dst, i.ASG)
	return appendInt64(dst, i.LastDirty)
}

// instance is the inverse of appendInstance. Composite literals evaluate their calls in the order in
// which they are written, which is the order of the bytes.
func (d *decoder) instance() *registry.Instance {
	return &registry.Instance{
		InstanceID:      d.string(),
		HostName:        d.string(),
		App:             d.string(),
		IPAddr:          d.string(),
		SID:             d.string(),
		Status:          d.status(),
		Overridden:      d.status(),
		Port:            d.port(),
		SecurePort:      d.port(),
		CountryID:       d.int32(),
		DataCenter:      registry.DataCenter{Name: d.string(), Metadata: d.pairs()},
		RenewalInterval: d.int32(),
		Duration:        d.int32(),
		Metadata:        d.pairs(),
		AppGroup:        d.string(),
		HomePageURL:     d.string(),
		StatusPageURL:   d.string(),
		HealthCheckURL:  d.string(),
		SecureHealthURL: d.string(),
		VIP:             d.string(),
		SecureVIP:       d.string(),
		ASG:             d.string(),
		LastDirty:       d.int64(),
	}
}

func (d *decoder) status() registry.Status { return registry.Status(d.enum(lastStatus, "status")) }

// appendPort puts both parts into one number: the port's number twice, one more if it is enabled.
func appendPort(dst []byte, p registry.Port) []byte {
	v := uint64(p.Number) << 1
	if p.Enabled {
		v |= 1
	}
	return binary.AppendUvarint(dst, v)
}

func (d *decoder) port() registry.Port {
	v := d.uvarint()
	if v>>1 > math.MaxUint16 {
		d.fail("port %d", v>>1)
		return registry.Port{}
	}
	return registry.Port{Number: uint16(v >> 1), Enabled: v&1 == 1}
}

func appendPairs(dst []byte, pairs []registry.Pair) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(pairs)))
	for _, p := range pairs {
		dst = appendString(appendString(dst, p.Key), p.Value)
	}
	return dst
}

func (d *decoder) pairs() []registry.Pair {
	n := d.count(2) // two lengths
	if n == 0 {
		return nil
	}
	pairs := make([]registry.Pair, n)
	for i := range pairs {
		pairs[i] = registry.Pair{Key: d.string(), Value: d.string()}
	}
	return pairs
}

func appendKey(dst []byte, k registry.Key) []byte {
	return appendString(appendString(dst, k.App), k.ID)
}

func (d *decoder) key() registry.Key { return registry.Key{App: d.string(), ID: d.string()} }

func appendHandle(dst []byte, h registry.Handle) []byte {
	return binary.AppendUvarint(appendUint32(dst, h.Slot), h.Gen)
}

func (d *decoder) handle() registry.Handle {
	return registry.Handle{Slot: d.uint32(), Gen: d.uvarint()}
}

func appendStamp(dst []byte, s registry.Stamp) []byte {
	return appendInt64(appendInt64(dst, s.Lease), s.Wall)
}

func (d *decoder) stamp() registry.Stamp {
	return registry.Stamp{Lease: d.int64(), Wall: d.int64()}
}

func appendEpoch(dst []byte, e registry.Epoch) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, e.Term), e.Index)
}

func (d *decoder) epoch() registry.Epoch {
	return registry.Epoch{Term: d.uvarint(), Index: d.uvarint()}
}

func (d *decoder) index() registry.Index { return registry.Index(d.uvarint()) }
