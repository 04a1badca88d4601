package eureka

import (
	"strconv"
	"unicode/utf8"
)

// appendText appends character data, escaped as upstream does. Characters that XML 1.0 cannot carry
// in any form become U+FFFD.
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

// isXMLChar says whether XML 1.0 allows a character in a document (production 2).
func isXMLChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000
}

// appendElement appends an element of a name that needs no escaping; an empty text gives an empty
// element.
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
