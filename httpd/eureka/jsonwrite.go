package eureka

import (
	"strconv"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// AppendQuoted appends a JSON string the way this package's documents write it. Bytes that are not UTF-8 become
// U+FFFD: one bad value must not make a document with a thousand instances unreadable.
func AppendQuoted(dst []byte, text string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(text[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, text[from:i]...)
		dst = appendEscape(dst, c)
		i += size
		from = i
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}

// appendEscape appends the JSON escape of a byte that cannot stand for itself.
func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if c >= utf8.RuneSelf {
		return append(dst, `\ufffd`...)
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// appendQuotedNull appends a JSON string, or null for an empty one.
func appendQuotedNull(dst []byte, text string) []byte {
	if text == "" {
		return append(dst, "null"...)
	}
	return AppendQuoted(dst, text)
}

// appendMember appends a member with a text value, key being the literal `,"name":`; an empty text
// is omitted.
func appendMember(dst []byte, key, text string) []byte {
	if text == "" {
		return dst
	}
	return AppendQuoted(append(dst, key...), text)
}

// appendNumber appends key, the literal `,"name":`, and a number.
func appendNumber(dst []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(dst, key...), n, 10)
}

// appendNumberText appends key, the literal `,"name":`, and a number as a string.
func appendNumberText(dst []byte, key string, n int64) []byte {
	dst = append(append(dst, key...), '"')
	return append(strconv.AppendInt(dst, n, 10), '"')
}

// appendInstanceObject appends an instance as a JSON object. coordinating marks the answering
// server's own instance.
func appendInstanceObject(dst []byte, f Format, l *registry.Lease, renewed registry.Stamp, coordinating bool) []byte {
	if f.Compact {
		return appendCompactObject(dst, l)
	}
	i := l.Instance
	dst = append(dst, '{')
	dst = appendInstanceID(dst, i)
	dst = appendQuotedNull(append(dst, `"hostName":`...), i.HostName)
	dst = AppendQuoted(append(dst, `,"app":`...), i.App)
	dst = appendQuotedNull(append(dst, `,"ipAddr":`...), i.IPAddr)
	dst = appendMember(dst, `,"sid":`, shownSID(i.SID))
	dst = appendMember(dst, `,"status":`, i.Status.String())
	dst = appendMember(dst, `,"overriddenStatus":`, i.Overridden.String())
	dst = appendPorts(dst, i)
	dst = appendNumber(dst, `,"countryId":`, int64(i.CountryID))
	dst = appendDataCenter(dst, f, i.DataCenter)
	dst = appendLeaseInfo(dst, l, renewed)
	dst = appendMetadata(dst, i.Metadata)
	dst = appendMember(dst, `,"appGroupName":`, i.AppGroup)
	dst = appendMember(dst, `,"homePageUrl":`, i.HomePageURL)
	dst = appendMember(dst, `,"statusPageUrl":`, i.StatusPageURL)
	dst = appendMember(dst, `,"healthCheckUrl":`, i.HealthCheckURL)
	dst = appendMember(dst, `,"secureHealthCheckUrl":`, i.SecureHealthURL)
	dst = appendMember(dst, `,"vipAddress":`, i.VIP)
	dst = appendMember(dst, `,"secureVipAddress":`, i.SecureVIP)
	dst = appendMember(dst, `,"isCoordinatingDiscoveryServer":`, strconv.FormatBool(coordinating))
	dst = appendNumberText(dst, `,"lastUpdatedTimestamp":`, l.UpdatedAt)
	dst = appendNumberText(dst, `,"lastDirtyTimestamp":`, i.LastDirty)
	dst = appendMember(dst, `,"actionType":`, l.Action.String())
	dst = appendMember(dst, `,"asgName":`, i.ASG)
	return append(dst, '}')
}

// appendCompactObject appends the compact form, in the order of upstream's MiniInstanceInfoMixIn.
func appendCompactObject(dst []byte, l *registry.Lease) []byte {
	i := l.Instance
	dst = append(dst, '{')
	dst = appendInstanceID(dst, i)
	dst = AppendQuoted(append(dst, `"app":`...), i.App)
	dst = appendQuotedNull(append(dst, `,"ipAddr":`...), i.IPAddr)
	dst = appendMember(dst, `,"vipAddress":`, i.VIP)
	dst = appendMember(dst, `,"secureVipAddress":`, i.SecureVIP)
	dst = appendDataCenter(dst, Format{Compact: true}, i.DataCenter)
	dst = appendQuotedNull(append(dst, `,"hostName":`...), i.HostName)
	dst = appendMember(dst, `,"status":`, i.Status.String())
	dst = appendNumber(dst, `,"lastUpdatedTimestamp":`, l.UpdatedAt)
	dst = appendMember(dst, `,"actionType":`, l.Action.String())
	dst = appendMember(dst, `,"asgName":`, i.ASG)
	dst = appendPorts(dst, i)
	return append(dst, '}')
}

// appendInstanceID appends the one optional member that comes first, with the comma after it.
func appendInstanceID(dst []byte, i *registry.Instance) []byte {
	if i.InstanceID == "" {
		return dst
	}
	dst = AppendQuoted(append(dst, `"instanceId":`...), i.InstanceID)
	return append(dst, ',')
}

// appendPorts appends all ports: fargo fails if one is missing or if the flag is not a string, and eureka-js if the
// number is not a number.
func appendPorts(dst []byte, i *registry.Instance) []byte {
	for n := range ports {
		p := ports[n].of(i)
		dst = append(append(append(dst, `,"`...), ports[n].name...), `":{"$":`...)
		dst = append(strconv.AppendInt(dst, int64(p.Given()), 10), `,"@enabled":"`...)
		dst = append(strconv.AppendBool(dst, p.Enabled), `"}`...)
	}
	return dst
}

// appendDataCenter appends dataCenterInfo. Amazon's must have metadata, even if empty, and the other kinds must not:
// Java's decoders fail otherwise.
func appendDataCenter(dst []byte, f Format, dc registry.DataCenter) []byte {
	if dc.Name != registry.Amazon {
		dst = append(dst, `,"dataCenterInfo":{"@class":"`+ownDataCenterClass+`","name":`...)
		return append(AppendQuoted(dst, dc.Name), '}')
	}
	dst = append(dst, `,"dataCenterInfo":{"@class":"`+amazonDataCenterClass+`","name":"Amazon","metadata":{`...)
	first := true
	for _, p := range dc.Metadata {
		if f.Compact && !compactKey(p.Key) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendPair(dst, p)
	}
	return append(dst, `}}`...)
}

func appendLeaseInfo(dst []byte, l *registry.Lease, renewed registry.Stamp) []byte {
	interval, duration := shownLease(l)
	dst = append(dst, `,"leaseInfo":{`...)
	dst = appendNumber(dst, `"renewalIntervalInSecs":`, interval)
	dst = appendNumber(dst, `,"durationInSecs":`, duration)
	dst = appendNumber(dst, `,"registrationTimestamp":`, l.RegisteredAt)
	dst = appendNumber(dst, `,"lastRenewalTimestamp":`, renewed.Wall)
	dst = appendNumber(dst, `,"evictionTimestamp":`, l.EvictedAt)
	dst = appendNumber(dst, `,"serviceUpTimestamp":`, l.ServiceUpAt)
	return append(dst, '}')
}

func appendMetadata(dst []byte, pairs []registry.Pair) []byte {
	dst = append(dst, `,"metadata":{`...)
	if len(pairs) == 0 {
		return append(dst, `"@class":"`+emptyMapClass+`"}`...)
	}
	for n, p := range pairs {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = appendPair(dst, p)
	}
	return append(dst, '}')
}

func appendPair(dst []byte, p registry.Pair) []byte {
	dst = append(AppendQuoted(dst, p.Key), ':')
	return AppendQuoted(dst, p.Value)
}
