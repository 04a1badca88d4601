package order

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName bounds a name, in bytes. Whoever makes a thing decides what to do about names that new things may not have:
// existing ones keep theirs (cmd/internal/node/quota.go).
const MaxName = 255

// PlainText reports whether a text is UTF-8 without control characters, as all names and texts for people are.
func PlainText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// ValidName reports whether a text can be a name: 1 to MaxName bytes of plain text, and not "." or "..", which proxies
// resolve.
func ValidName(name string) bool {
	return name != "" && len(name) <= MaxName && name != "." && name != ".." && PlainText(name)
}

// HasInvisible reports whether a text has invisible characters that make it look like another text: those that change
// the direction of writing, have no width, or separate lines (Unicode's Cf, Zl, Zp and everything that it calls default
// ignorable).
func HasInvisible(text string) bool { return strings.ContainsFunc(text, Invisible) }

// CutText shortens a text to at most most bytes of whole characters, with an ellipsis at the end.
func CutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Invisible reports whether a character is one of those.
func Invisible(r rune) bool {
	return r > unicode.MaxASCII && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
