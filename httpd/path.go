package httpd

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNameBytes bounds every segment of a path, so application and instance names too.
const maxNameBytes = 255

// cleanPath splits the escaped path, unescapes each segment and drops empty ones: clients send
// "apps", "apps/" and "//apps" for the same thing and follow no redirect. An escaped slash stays
// inside its segment. It returns the path in one form, for the router.
func cleanPath(u *url.URL) (*url.URL, error) {
	var plain, escaped strings.Builder
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if segment == "" {
			continue
		}
		name, err := url.PathUnescape(segment)
		if err != nil {
			return nil, badRequest("the path is not correctly escaped")
		}
		if err := checkName(name); err != nil {
			return nil, err
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

// checkName refuses what no name in a path may be. Names never touch a file system; dots are refused
// all the same, because proxies resolve them.
func checkName(name string) error {
	switch {
	case name == "." || name == "..":
		return badRequest("a path segment must not be . or ..")
	case len(name) > maxNameBytes:
		return badRequest("a path segment is longer than 255 bytes")
	case !utf8.ValidString(name):
		return badRequest("a path segment is not UTF-8")
	case strings.IndexFunc(name, unicode.IsControl) >= 0:
		return badRequest("a path segment has a control character")
	}
	return nil
}

// unescaped is a segment of a path that net/http or cleanPath has checked.
func unescaped(segment string) string {
	name, _ := url.PathUnescape(segment)
	return name
}
