package web

import (
	"net/url"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// CleanPath splits the escaped path, unescapes each segment and drops empty ones: clients send "apps", "apps/" and
// "//apps" for the same thing and follow no redirect. An escaped slash stays inside its segment. It returns the path
// in one form, for the router.
func CleanPath(u *url.URL) (*url.URL, error) {
	var plain, escaped strings.Builder
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if segment == "" {
			continue
		}
		name, err := url.PathUnescape(segment)
		if err != nil {
			return nil, BadRequest("the path is not correctly escaped")
		}
		switch {
		case name == "." || name == "..": // names never touch a file system, but proxies resolve dots
			return nil, BadRequest("a path segment must not be . or ..")
		case len(name) > order.MaxName:
			return nil, BadRequest("a path segment is longer than 255 bytes")
		case !order.PlainText(name):
			return nil, BadRequest("a path segment must be UTF-8 without control characters")
		}
		plain.WriteString("/" + name)
		escaped.WriteString("/" + url.PathEscape(name))
	}
	clean := *u
	clean.Path, clean.RawPath = plain.String(), escaped.String()
	if clean.Path == "" {
		clean.Path, clean.RawPath = "/", "/"
	}
	return &clean, nil
}

// unescaped unescapes a segment that net/http or CleanPath has checked.
func unescaped(segment string) string {
	name, _ := url.PathUnescape(segment)
	return name
}

// IsPage reports whether a normalized path is one of the dashboard's.
func IsPage(path string) bool {
	return path == "/" || path == "/lastn" || path == "/ui" || strings.HasPrefix(path, "/ui/")
}

// FormOfPath returns how a path's API words errors when no route was found for it: Eureka's clients get no text,
// because they decode whatever they get.
func FormOfPath(path string) Form {
	switch {
	case strings.HasPrefix(path, "/v1/rollcall/"):
		return JSONForm
	case strings.HasPrefix(path, "/v1/"):
		return ConsulForm
	case IsPage(path):
		return PageForm
	}
	return EmptyForm
}
