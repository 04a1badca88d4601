// Package naming says which characters the names of things may have, and shortens texts for people. Whoever makes a
// thing decides what to do about names that new things may not have: existing ones keep theirs (package capacity).
package naming

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Max bounds a name, in bytes.
const Max = 255

// Plain reports whether a text is UTF-8 without control characters, as all names and texts for people are.
func Plain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// Valid reports whether a text can be a name: 1 to Max bytes of plain text, and not "." or "..", which proxies resolve.
func Valid(name string) bool {
	return name != "" && len(name) <= Max && name != "." && name != ".." && Plain(name)
}

// Hides reports whether a text has invisible characters that make it look like another text: those that change the
// direction of writing, have no width, or separate lines (Unicode's Cf, Zl, Zp and everything that it calls default
// ignorable).
func Hides(text string) bool { return strings.ContainsFunc(text, Unseen) }

// Cut shortens a text to at most most bytes of whole characters, with an ellipsis at the end.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Unseen reports whether a character is one of those.
func Unseen(r rune) bool {
	return r > unicode.MaxASCII && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
