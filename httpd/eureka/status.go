package eureka

import (
	"iter"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// StatusInfo is what a server says about itself (upstream: com.netflix.eureka.util.StatusInfo).
type StatusInfo struct {
	General             []registry.Pair // generalStats, in order: environment, num-of-cpus, total-avail-memory, ...
	RegisteredReplicas  string          // URLs, joined with ", "
	AvailableReplicas   string          // URLs, each followed by ","
	UnavailableReplicas string          // URLs, each followed by ","
	Instance            *registry.Lease // the server's own, with its last renewal in RenewedAt
	Healthy             *bool           // nil unless a minimum of available peers is configured
}

// AppendStatusInfo appends the status document.
func AppendStatusInfo(dst []byte, f Format, s *StatusInfo) []byte {
	ofApplication := []registry.Pair{
		{Key: "registered-replicas", Value: s.RegisteredReplicas},
		{Key: "available-replicas", Value: s.AvailableReplicas},
		{Key: "unavailable-replicas", Value: s.UnavailableReplicas},
	}
	if !f.XML {
		dst = appendPairs(append(dst, `{"generalStats":`...), slices.Values(s.General))
		dst = appendPairs(append(dst, `,"applicationStats":`...), slices.Values(ofApplication))
		dst = appendInstanceObject(append(dst, `,"instanceInfo":`...), Format{}, s.Instance, s.Instance.RenewedAt, true)
		if s.Healthy != nil {
			dst = append(append(dst, `,"healthy":`...), strconv.FormatBool(*s.Healthy)...)
		}
		return append(dst, '}')
	}
	dst = appendOpen(dst, statusInfoClass)
	dst = appendStats(dst, "generalStats", s.General)
	dst = appendStats(dst, "applicationStats", ofApplication)
	dst = appendInstanceElement(dst, Format{XML: true, V1: f.V1}, "instanceInfo", s.Instance, s.Instance.RenewedAt, true)
	if s.Healthy != nil {
		dst = appendElement(dst, "isHeathly", strconv.FormatBool(*s.Healthy)) // upstream's spelling
	}
	return appendClose(dst, statusInfoClass)
}

func appendStats(dst []byte, name string, stats []registry.Pair) []byte {
	dst = appendOpen(dst, name)
	for _, p := range stats {
		dst = appendPairElement(dst, p)
	}
	return appendClose(dst, name)
}

// AppendStatusOverrides appends the document of all overrides, a JSON object from id to status. Of instances with the
// same id in several applications it shows the first: the document has no room for the application.
func AppendStatusOverrides(dst []byte, leases iter.Seq[*registry.Lease]) []byte {
	seen := map[string]bool{}
	return appendPairs(dst, func(yield func(registry.Pair) bool) {
		for l := range leases {
			id := l.Instance.ID()
			if l.Instance.Overridden == registry.Unknown || seen[id] {
				continue
			}
			seen[id] = true
			if !yield(registry.Pair{Key: id, Value: l.Instance.Overridden.String()}) {
				return
			}
		}
	})
}

// appendPairs appends a JSON object of texts.
func appendPairs(dst []byte, pairs iter.Seq[registry.Pair]) []byte {
	dst = append(dst, '{')
	first := true
	for p := range pairs {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendPair(dst, p)
	}
	return append(dst, '}')
}
