package eureka

import "github.com/seed-20419f34/rollcall/fsm/registry"

// AppendInstance appends an instance as it stands in the list of an application: a bare JSON
// object, or an <instance> element. renewed is the lease's last renewal.
func AppendInstance(dst []byte, f Format, l *registry.Lease, renewed registry.Stamp) []byte {
	if f.XML {
		return appendInstanceElement(dst, f, "instance", l, renewed, false)
	}
	return appendInstanceObject(dst, f, l, renewed, false)
}

// AppendInstanceDocument appends the document of one instance: the JSON object is wrapped in one
// with the key "instance", the XML element is its own root. It is also the body of a registration.
func AppendInstanceDocument(dst []byte, f Format, l *registry.Lease, renewed registry.Stamp) []byte {
	if f.XML {
		return AppendInstance(dst, f, l, renewed)
	}
	dst = append(dst, `{"instance":`...)
	dst = AppendInstance(dst, f, l, renewed)
	return append(dst, '}')
}

// shownSID is the sid as it is shown; upstream hides its own default words.
func shownSID(sid string) string {
	if sid == "na" || sid == "unknown" {
		return ""
	}
	return sid
}

// shownLease is a lease's interval and duration in seconds, with upstream's defaults for an instance
// that has no lease of its own.
func shownLease(l *registry.Lease) (interval, duration int64) {
	interval, duration = int64(l.Interval), int64(l.Duration)
	if interval <= 0 {
		interval = registry.DefaultRenewalInterval
	}
	if duration <= 0 {
		duration = registry.DefaultDuration
	}
	return interval, duration
}

// compactKey says whether the compact form keeps a key of Amazon's metadata.
func compactKey(key string) bool {
	switch key {
	case "instance-id", "public-ipv4", "public-hostname", "local-ipv4", "availability-zone":
		return true
	}
	return false
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
