package eureka

import (
	"iter"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// A document of the whole registry is assembled in this order; where it says separator, AppendSeparator
// goes between two neighbours:
//
//	AppendApplicationsHead
//	  per application, with separators:  AppendApplicationHead, instances with separators, AppendApplicationTail
//	AppendApplicationsTail

// AppendApplicationsHead appends the text before the first application. version is versions__delta, hash is
// apps__hashcode; the same values must go to AppendApplicationsTail.
func AppendApplicationsHead(dst []byte, f Format, version, hash string) []byte {
	if f.XML {
		dst = append(dst, "<applications>"...)
		if f.Compact {
			return dst
		}
		return appendVersionElements(dst, version, hash)
	}
	dst = append(dst, `{"applications":{`...)
	if !f.Compact {
		dst = append(appendVersion(dst, version, hash), ',')
	}
	return append(dst, `"application":[`...)
}

// AppendApplicationsTail appends the text after the last application. The compact form has version and hash here.
func AppendApplicationsTail(dst []byte, f Format, version, hash string) []byte {
	if f.XML {
		if f.Compact {
			dst = appendVersionElements(dst, version, hash)
		}
		return append(dst, "</applications>"...)
	}
	dst = append(dst, ']')
	if f.Compact {
		dst = appendVersion(append(dst, ','), version, hash)
	}
	return append(dst, "}}"...)
}

func appendVersion(dst []byte, version, hash string) []byte {
	dst = AppendQuoted(append(dst, `"versions__delta":`...), version)
	return AppendQuoted(append(dst, `,"apps__hashcode":`...), hash)
}

func appendVersionElements(dst []byte, version, hash string) []byte {
	dst = appendElement(dst, "versions__delta", version)
	return appendElement(dst, "apps__hashcode", hash)
}

// AppendApplicationHead appends the text before the first instance of an application. JSON's list is there even if it
// stays empty: strict clients need it.
func AppendApplicationHead(dst []byte, f Format, name string) []byte {
	if f.XML {
		return appendElement(append(dst, "<application>"...), "name", name)
	}
	dst = AppendQuoted(append(dst, `{"name":`...), name)
	return append(dst, `,"instance":[`...)
}

// AppendApplicationTail appends the text after the last instance of an application.
func AppendApplicationTail(dst []byte, f Format) []byte {
	if f.XML {
		return append(dst, "</application>"...)
	}
	return append(dst, "]}"...)
}

// AppendSeparator appends the text between two applications, or two instances.
func AppendSeparator(dst []byte, f Format) []byte {
	if f.XML {
		return dst
	}
	return append(dst, ',')
}

// AppendApplications appends a whole document of leases that are grouped by application; their last renewals are shown
// as of their last change.
func AppendApplications(dst []byte, f Format, version, hash string, leases iter.Seq[*registry.Lease]) []byte {
	dst = AppendApplicationsHead(dst, f, version, hash)
	app, open := "", false
	for l := range leases {
		switch {
		case !open:
			dst = AppendApplicationHead(dst, f, l.Instance.App)
		case l.Instance.App != app:
			dst = AppendSeparator(AppendApplicationTail(dst, f), f)
			dst = AppendApplicationHead(dst, f, l.Instance.App)
		default:
			dst = AppendSeparator(dst, f)
		}
		app, open = l.Instance.App, true
		dst = AppendInstance(dst, f, l, l.RenewedAt)
	}
	if open {
		dst = AppendApplicationTail(dst, f)
	}
	return AppendApplicationsTail(dst, f, version, hash)
}

// AppendDelta appends the document of a delta.
func AppendDelta(dst []byte, f Format, d registry.Delta) []byte {
	return AppendApplications(dst, f, strconv.FormatUint(d.Version, 10), d.HashCode, slices.Values(d.Leases))
}

// AppendVIP appends the response to a query by VIP address; its hash covers only the listed leases. leases is ranged
// over twice.
func AppendVIP(dst []byte, f Format, leases iter.Seq[*registry.Lease]) []byte {
	var counts registry.Counts
	for l := range leases {
		counts[l.Instance.Status]++
	}
	return AppendApplications(dst, f, vipVersion, counts.HashCode(), leases)
}

// AppendApplication appends the document of one application.
func AppendApplication(dst []byte, f Format, name string, leases iter.Seq[*registry.Lease]) []byte {
	if !f.XML {
		dst = append(dst, `{"application":`...)
	}
	dst = AppendApplicationHead(dst, f, name)
	first := true
	for l := range leases {
		if !first {
			dst = AppendSeparator(dst, f)
		}
		first = false
		dst = AppendInstance(dst, f, l, l.RenewedAt)
	}
	dst = AppendApplicationTail(dst, f)
	if !f.XML {
		dst = append(dst, '}')
	}
	return dst
}

// AppendInstance appends an instance as it appears in an application's list: a bare JSON object, or an <instance>
// element. renewed is the lease's last renewal.
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

// shownSID returns the sid as shown; upstream hides its own default words.
func shownSID(sid string) string {
	if sid == "na" || sid == "unknown" {
		return ""
	}
	return sid
}

// shownLease returns a lease's interval and duration in seconds, with upstream's defaults for an instance without its
// own lease times.
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

// compactKey reports whether the compact form keeps a key of Amazon's metadata.
func compactKey(key string) bool {
	switch key {
	case "instance-id", "public-ipv4", "public-hostname", "local-ipv4", "availability-zone":
		return true
	}
	return false
}
