// Package naming says which characters names may have, of whatever things, and shortens texts for people. Who makes a
// thing decides what to do about names that may not be new: what has such a name already goes on (package capacity).
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

// Hides reports whether a text has characters that are not seen, and make it look like another text: those that turn
// the direction of writing, of no width, or that separate lines (Unicode's Cf, Zl, Zp and all that it calls default ignorable).
func Hides(text string) bool { return strings.ContainsFunc(text, Unseen) }

// Cut shortens a text to at most most bytes of whole characters, with dots at the end.
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
