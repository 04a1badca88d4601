package eureka

import (
	"strconv"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// appendText appends character data, escaped as upstream does. Characters that XML 1.0 cannot carry in any form become
// U+FFFD.
func appendText(dst []byte, text string) []byte {
	from := 0
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[i:])
		}
		entity := entityOf(r)
		if entity == "" && isXMLChar(r) && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		if entity == "" {
			entity = "\uFFFD"
		}
		dst = append(dst, text[from:i]...)
		dst = append(dst, entity...)
		i += size
		from = i
	}
	return append(dst, text[from:]...)
}

func entityOf(r rune) string {
	switch r {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	case '"':
		return "&quot;"
	case '\'':
		return "&apos;"
	case '\r':
		return "&#xd;" // a bare one would be read as a line feed
	}
	return ""
}

// isXMLChar reports whether XML 1.0 allows a character in a document (production 2).
func isXMLChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000
}

// appendElement appends an element whose name needs no escaping; an empty text gives an empty element.
func appendElement(dst []byte, name, text string) []byte {
	dst = appendOpen(dst, name)
	dst = appendText(dst, text)
	return appendClose(dst, name)
}

// appendGiven is appendElement, but omits an empty text.
func appendGiven(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	return appendElement(dst, name, text)
}

func appendNumberElement(dst []byte, name string, n int64) []byte {
	dst = appendOpen(dst, name)
	dst = strconv.AppendInt(dst, n, 10)
	return appendClose(dst, name)
}

func appendOpen(dst []byte, name string) []byte {
	return append(append(append(dst, '<'), name...), '>')
}

func appendClose(dst []byte, name string) []byte {
	return append(append(append(dst, '<', '/'), name...), '>')
}

// appendInstanceElement appends an instance as an element called name. coordinating marks the
// answering server's own instance.
func appendInstanceElement(dst []byte, f Format, name string, l *registry.Lease, renewed registry.Stamp, coordinating bool) []byte {
	dst = appendOpen(dst, name)
	if f.Compact {
		dst = appendCompactElements(dst, f, l)
	} else {
		dst = appendFullElements(dst, f, l, renewed, coordinating)
	}
	return appendClose(dst, name)
}

func appendFullElements(dst []byte, f Format, l *registry.Lease, renewed registry.Stamp, coordinating bool) []byte {
	i := l.Instance
	dst = appendGiven(dst, "instanceId", i.InstanceID)
	dst = appendGiven(dst, "hostName", i.HostName)
	dst = appendElement(dst, "app", i.App)
	dst = appendGiven(dst, "ipAddr", i.IPAddr)
	dst = appendGiven(dst, "sid", shownSID(i.SID))
	dst = appendElement(dst, "status", f.statusWord(i.Status))
	dst = appendElement(dst, "overriddenstatus", i.Overridden.String())
	dst = appendPortElements(dst, i)
	dst = appendNumberElement(dst, "countryId", int64(i.CountryID))
	dst = appendDataCenterElement(dst, f, i.DataCenter)
	dst = appendLeaseInfoElement(dst, l, renewed)
	dst = appendMetadataElement(dst, i.Metadata)
	dst = appendGiven(dst, "appGroupName", i.AppGroup)
	dst = appendGiven(dst, "homePageUrl", i.HomePageURL)
	dst = appendGiven(dst, "statusPageUrl", i.StatusPageURL)
	dst = appendGiven(dst, "healthCheckUrl", i.HealthCheckURL)
	dst = appendGiven(dst, "secureHealthCheckUrl", i.SecureHealthURL)
	dst = appendGiven(dst, "vipAddress", i.VIP)
	dst = appendGiven(dst, "secureVipAddress", i.SecureVIP)
	dst = appendElement(dst, "isCoordinatingDiscoveryServer", strconv.FormatBool(coordinating))
	dst = appendNumberElement(dst, "lastUpdatedTimestamp", l.UpdatedAt)
	dst = appendNumberElement(dst, "lastDirtyTimestamp", i.LastDirty)
	dst = appendGiven(dst, "actionType", l.Action.String())
	return appendGiven(dst, "asgName", i.ASG)
}

func appendCompactElements(dst []byte, f Format, l *registry.Lease) []byte {
	i := l.Instance
	dst = appendGiven(dst, "instanceId", i.InstanceID)
	dst = appendElement(dst, "app", i.App)
	dst = appendGiven(dst, "ipAddr", i.IPAddr)
	dst = appendGiven(dst, "vipAddress", i.VIP)
	dst = appendGiven(dst, "secureVipAddress", i.SecureVIP)
	dst = appendDataCenterElement(dst, f, i.DataCenter)
	dst = appendGiven(dst, "hostName", i.HostName)
	dst = appendElement(dst, "status", f.statusWord(i.Status))
	dst = appendNumberElement(dst, "lastUpdatedTimestamp", l.UpdatedAt)
	dst = appendGiven(dst, "actionType", l.Action.String())
	dst = appendGiven(dst, "asgName", i.ASG)
	return appendPortElements(dst, i)
}

// statusWord returns the word for a status; version 1 of the protocol knew only three (upstream:
// V1AwareInstanceInfoConverter).
func (f Format) statusWord(s registry.Status) string {
	if f.V1 && s != registry.Up && s != registry.Starting {
		s = registry.Down
	}
	return s.String()
}

func appendPortElements(dst []byte, i *registry.Instance) []byte {
	for n := range ports {
		p, name := ports[n].of(i), ports[n].name
		dst = append(append(append(dst, '<'), name...), ` enabled="`...)
		dst = append(strconv.AppendBool(dst, p.Enabled), `">`...)
		dst = appendClose(strconv.AppendInt(dst, int64(p.Given()), 10), name)
	}
	return dst
}

// appendDataCenterElement puts the name before the metadata: upstream's reader needs it there.
func appendDataCenterElement(dst []byte, f Format, dc registry.DataCenter) []byte {
	if dc.Name != registry.Amazon {
		dst = append(dst, `<dataCenterInfo class="`+ownDataCenterClass+`">`...)
		dst = appendElement(dst, "name", dc.Name)
		return append(dst, `</dataCenterInfo>`...)
	}
	dst = append(dst, `<dataCenterInfo class="`+amazonDataCenterClass+`"><name>Amazon</name><metadata>`...)
	for _, p := range dc.Metadata {
		if !f.Compact || compactKey(p.Key) {
			dst = appendPairElement(dst, p)
		}
	}
	return append(dst, `</metadata></dataCenterInfo>`...)
}

func appendLeaseInfoElement(dst []byte, l *registry.Lease, renewed registry.Stamp) []byte {
	interval, duration := shownLease(l)
	dst = append(dst, "<leaseInfo>"...)
	dst = appendNumberElement(dst, "renewalIntervalInSecs", interval)
	dst = appendNumberElement(dst, "durationInSecs", duration)
	dst = appendNumberElement(dst, "registrationTimestamp", l.RegisteredAt)
	dst = appendNumberElement(dst, "lastRenewalTimestamp", renewed.Wall)
	dst = appendNumberElement(dst, "evictionTimestamp", l.EvictedAt)
	dst = appendNumberElement(dst, "serviceUpTimestamp", l.ServiceUpAt)
	return append(dst, "</leaseInfo>"...)
}

func appendMetadataElement(dst []byte, pairs []registry.Pair) []byte {
	if len(pairs) == 0 {
		return append(dst, `<metadata class="`+emptyMapClass+`"/>`...)
	}
	dst = append(dst, "<metadata>"...)
	for _, p := range pairs {
		dst = appendPairElement(dst, p)
	}
	return append(dst, "</metadata>"...)
}

// appendPairElement leaves out an empty key, which JSON allows and XML cannot name.
func appendPairElement(dst []byte, p registry.Pair) []byte {
	if p.Key == "" {
		return dst
	}
	dst = append(appendName(append(dst, '<'), p.Key), '>')
	dst = appendText(dst, p.Value)
	return append(appendName(append(dst, '<', '/'), p.Key), '>')
}
