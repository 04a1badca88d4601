package fsm

import (
	"encoding/binary"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// What a RegisterCatalog has, in its first byte.
const (
	catalogNode          = 0x01 // a node follows; without it: the logical one
	catalogKeepNode      = 0x02
	catalogService       = 0x04 // a service and its instance follow
	catalogReplaceChecks = 0x08
	catalogKeepStatus    = 0x10
	catalogBits          = catalogNode | catalogKeepNode | catalogService | catalogReplaceChecks | catalogKeepStatus
)

const lastCheckStatus = byte(registry.Critical)

// The least that an element of each list takes: its strings and lists empty, its numbers 0.
const (
	minCheckSize  = 15
	minTaggedSize = 3
	minNodeSize   = 8
	minHeardSize  = 3
)

func appendRegisterCatalog(dst []byte, op registry.RegisterCatalog) []byte {
	first := len(dst)
	dst = append(dst, 0)
	for _, b := range []struct {
		set bool
		bit byte
	}{{op.KeepNode, catalogKeepNode}, {op.ReplaceChecks, catalogReplaceChecks}, {op.KeepStatus, catalogKeepStatus}} {
		if b.set {
			dst[first] |= b.bit
		}
	}
	if op.Node != nil {
		dst[first] |= catalogNode
		dst = appendCatalogNode(dst, op.Node)
	}
	if op.Service != nil {
		dst[first] |= catalogService
		dst = appendBody(appendService(dst, op.Service), op.Instance)
	}
	return appendList(dst, op.Checks, appendCheck)
}

func (d *decoder) registerCatalog() registry.RegisterCatalog {
	which := d.enum(catalogBits, "parts of a registration")
	op := registry.RegisterCatalog{
		KeepNode:      which&catalogKeepNode != 0,
		ReplaceChecks: which&catalogReplaceChecks != 0,
		KeepStatus:    which&catalogKeepStatus != 0,
	}
	if which&catalogNode != 0 {
		op.Node = d.catalogNode()
	}
	if which&catalogService != 0 {
		op.Service, op.Instance = d.service(), d.body()
	}
	op.Checks = d.checks()
	return op
}

func appendDeregisterCatalog(dst []byte, op registry.DeregisterCatalog) []byte {
	dst = appendString(appendString(appendString(dst, op.Node), op.Service), op.Check)
	return appendInt64(appendEpoch(dst, op.Epoch), op.CriticalSince)
}

func (d *decoder) deregisterCatalog() registry.DeregisterCatalog {
	return registry.DeregisterCatalog{
		Node:          d.string(),
		Service:       d.string(),
		Check:         d.string(),
		Epoch:         d.epoch(),
		CriticalSince: d.int64(),
	}
}

func appendSetCheck(dst []byte, op registry.SetCheck) []byte {
	dst = append(appendString(appendString(dst, op.Node), op.Check), byte(op.Status))
	return appendEpoch(appendBool(appendString(dst, op.Output), op.TTL), op.Epoch)
}

func (d *decoder) setCheck() registry.SetCheck {
	return registry.SetCheck{
		Node:   d.string(),
		Check:  d.string(),
		Status: d.checkStatus(),
		Output: d.string(),
		TTL:    d.bool(),
		Epoch:  d.epoch(),
	}
}

func appendExpireCheck(dst []byte, op registry.ExpireCheck) []byte {
	dst = appendString(appendString(appendEpoch(dst, op.Epoch), op.Node), op.Check)
	return appendInt64(dst, op.RenewedAt)
}

func (d *decoder) expireCheck() registry.ExpireCheck {
	return registry.ExpireCheck{Epoch: d.epoch(), Node: d.string(), Check: d.string(), RenewedAt: d.int64()}
}

func appendCatalogNode(dst []byte, n *registry.Node) []byte {
	dst = appendString(appendString(appendString(dst, n.ID), n.Name), n.Address)
	dst = appendPairs(appendPairs(dst, n.Tagged), n.Meta)
	dst = appendList(dst, n.Checks, appendCheck)
	return appendNumbers(dst, uint64(n.CreateIndex), uint64(n.ModifyIndex))
}

func (d *decoder) catalogNode() *registry.Node {
	return &registry.Node{
		ID:          d.string(),
		Name:        d.string(),
		Address:     d.string(),
		Tagged:      d.pairs(),
		Meta:        d.pairs(),
		Checks:      d.checks(),
		CreateIndex: d.index(),
		ModifyIndex: d.index(),
	}
}

// appendCatalogPlace encodes the indexes of changes that are none of an instance.
func appendCatalogPlace(dst []byte, f registry.Frozen) []byte {
	return appendNumbers(dst, uint64(f.Taken), uint64(f.CatalogIndex))
}

func (d *decoder) catalogPlace(f *registry.Frozen) { f.Taken, f.CatalogIndex = d.index(), d.index() }

func appendHeard(dst []byte, h registry.CheckHeartbeat) []byte {
	return appendInt64(appendString(appendString(dst, h.Node), h.Check), h.At)
}

func (d *decoder) heard() registry.CheckHeartbeat {
	return registry.CheckHeartbeat{Node: d.string(), Check: d.string(), At: d.int64()}
}

func appendService(dst []byte, s *registry.CatalogService) []byte {
	dst = appendString(appendString(appendString(dst, s.Name), s.ID), s.Node)
	dst = appendInt32(appendString(appendStrings(dst, s.Tags), s.Address), s.Port)
	dst = appendList(dst, s.Tagged, appendTagged)
	dst = appendInt32(appendInt32(dst, s.WeightPassing), s.WeightWarning)
	dst = appendString(appendString(appendBool(dst, s.TagOverride), s.Kind), s.SocketPath)
	dst = appendBytes(appendBytes(dst, s.Locality), s.Ports)
	dst = appendList(dst, s.Checks, appendCheck)
	return appendNumbers(dst, uint64(s.CreateIndex), uint64(s.ModifyIndex))
}

func (d *decoder) service() *registry.CatalogService {
	return &registry.CatalogService{
		Name:          d.string(),
		ID:            d.string(),
		Node:          d.string(),
		Tags:          d.strings(),
		Address:       d.string(),
		Port:          d.int32(),
		Tagged:        list(d, minTaggedSize, (*decoder).tagged),
		WeightPassing: d.int32(),
		WeightWarning: d.int32(),
		TagOverride:   d.bool(),
		Kind:          d.string(),
		SocketPath:    d.string(),
		Locality:      d.value(),
		Ports:         d.value(),
		Checks:        d.checks(),
		CreateIndex:   d.index(),
		ModifyIndex:   d.index(),
	}
}

// appendServiceIfAny encodes a service, after whether there is one.
func appendServiceIfAny(dst []byte, s *registry.CatalogService) []byte {
	if s == nil {
		return append(dst, 0)
	}
	return appendService(append(dst, 1), s)
}

func (d *decoder) serviceIfAny() *registry.CatalogService {
	if !d.bool() {
		return nil
	}
	return d.service()
}

func appendTagged(dst []byte, a registry.TaggedAddress) []byte {
	return appendInt32(appendString(appendString(dst, a.Tag), a.Address), a.Port)
}

func (d *decoder) tagged() registry.TaggedAddress {
	return registry.TaggedAddress{Tag: d.string(), Address: d.string(), Port: d.int32()}
}

func appendCheck(dst []byte, c *registry.Check) []byte {
	dst = appendString(appendString(appendString(dst, c.Node), c.ID), c.Name)
	dst = append(appendString(appendString(dst, c.Notes), c.Output), byte(c.Status))
	dst = appendString(appendString(dst, c.Service), c.Type)
	dst = appendInt64(appendInt64(dst, c.TTL), c.ReapAfter)
	dst = appendBytes(appendProbe(dst, c.Probe), c.Definition)
	dst = binary.AppendUvarint(dst, uint64(c.CreateIndex))
	dst = binary.AppendUvarint(dst, uint64(c.ModifyIndex))
	return appendInt64(dst, c.CriticalSince)
}

func (d *decoder) check() *registry.Check {
	return &registry.Check{
		Node:          d.string(),
		ID:            d.string(),
		Name:          d.string(),
		Notes:         d.string(),
		Output:        d.string(),
		Status:        d.checkStatus(),
		Service:       d.string(),
		Type:          d.string(),
		TTL:           d.int64(),
		ReapAfter:     d.int64(),
		Probe:         d.probe(),
		Definition:    d.value(),
		CreateIndex:   d.index(),
		ModifyIndex:   d.index(),
		CriticalSince: d.int64(),
	}
}

func (d *decoder) checks() []*registry.Check { return list(d, minCheckSize, (*decoder).check) }

func (d *decoder) checkStatus() registry.CheckStatus {
	return registry.CheckStatus(d.enum(lastCheckStatus, "status of a check"))
}

// appendProbe encodes a probe, after whether there is one.
func appendProbe(dst []byte, p *registry.Probe) []byte {
	if p == nil {
		return append(dst, 0)
	}
	dst = appendString(appendString(appendString(append(dst, 1), p.HTTP), p.Method), p.Body)
	dst = appendString(appendBool(appendBool(appendPairs(dst, p.Header), p.SkipVerify), p.NoRedirects), p.TCP)
	dst = appendInt64(appendInt64(dst, p.Interval), p.Timeout)
	dst = appendInt32(appendInt32(dst, p.SuccessBeforePassing), p.FailuresBeforeWarning)
	return appendInt32(dst, p.FailuresBeforeCritical)
}

func (d *decoder) probe() *registry.Probe {
	if !d.bool() {
		return nil
	}
	return &registry.Probe{
		HTTP:                   d.string(),
		Method:                 d.string(),
		Body:                   d.string(),
		Header:                 d.pairs(),
		SkipVerify:             d.bool(),
		NoRedirects:            d.bool(),
		TCP:                    d.string(),
		Interval:               d.int64(),
		Timeout:                d.int64(),
		SuccessBeforePassing:   d.int32(),
		FailuresBeforeWarning:  d.int32(),
		FailuresBeforeCritical: d.int32(),
	}
}
