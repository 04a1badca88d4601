package eureka

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Keys of maps are the names of XML elements, escaped as upstream's XStream does it
// (XmlFriendlyNameCoder): "_" is "__", "$" is "_-", and a character that cannot stand in a name, or
// not at its start, is "_." and four hexadecimal digits per UTF-16 unit.

// nameLetters are the letters outside ASCII that every edition of XML 1.0 allows in a name. What
// only later editions allow is escaped, since many parsers follow the older ones.
var nameLetters = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x00C0, Hi: 0x00D6, Stride: 1}, {Lo: 0x00D8, Hi: 0x00F6, Stride: 1}, {Lo: 0x00F8, Hi: 0x0131, Stride: 1},
	{Lo: 0x0388, Hi: 0x038A, Stride: 1}, {Lo: 0x038E, Hi: 0x03A1, Stride: 1}, {Lo: 0x03A3, Hi: 0x03CE, Stride: 1},
	{Lo: 0x0401, Hi: 0x040C, Stride: 1}, {Lo: 0x040E, Hi: 0x044F, Stride: 1}, {Lo: 0x0451, Hi: 0x045C, Stride: 1},
	{Lo: 0x05D0, Hi: 0x05EA, Stride: 1}, {Lo: 0x0621, Hi: 0x063A, Stride: 1}, {Lo: 0x3041, Hi: 0x3094, Stride: 1},
	{Lo: 0x30A1, Hi: 0x30FA, Stride: 1}, {Lo: 0x4E00, Hi: 0x9FA5, Stride: 1}, {Lo: 0xAC00, Hi: 0xD7A3, Stride: 1},
}, LatinOffset: 2}

// appendName appends a key as an element name. The key must not be empty.
func appendName(dst []byte, key string) []byte {
	for i, r := range key {
		switch {
		case r == '_':
			dst = append(dst, "__"...)
		case r == '$':
			dst = append(dst, "_-"...)
		case isNameChar(r, i == 0):
			dst = utf8.AppendRune(dst, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			dst = appendHexUnit(appendHexUnit(dst, high), low)
		default:
			dst = appendHexUnit(dst, r)
		}
	}
	return dst
}

// isNameChar leaves out the colon: it would make the key look like one with a name space.
func isNameChar(r rune, first bool) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return true
	case r >= '0' && r <= '9', r == '-', r == '.':
		return !first
	}
	return r >= utf8.RuneSelf && unicode.Is(nameLetters, r)
}

func appendHexUnit(dst []byte, unit rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '_', '.', hex[unit>>12&15], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
}

// parseName is the inverse of appendName. An underscore that begins no escape stands for itself, as
// clients send names that were never escaped.
func parseName(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	key := make([]byte, 0, len(name))
	for name != "" {
		if name[0] != '_' {
			key = append(key, name[0])
			name = name[1:]
			continue
		}
		r, size := parseEscape(name)
		key = utf8.AppendRune(key, r)
		name = name[size:]
	}
	return string(key)
}

// parseEscape returns the character that an escape at the start of name stands for, and its length.
func parseEscape(name string) (r rune, size int) {
	switch {
	case strings.HasPrefix(name, "__"):
		return '_', 2
	case strings.HasPrefix(name, "_-"):
		return '$', 2
	}
	unit, ok := parseHexUnit(name)
	if !ok {
		return '_', 1
	}
	if !utf16.IsSurrogate(unit) {
		return unit, 6
	}
	low, ok := parseHexUnit(name[6:])
	if pair := utf16.DecodeRune(unit, low); ok && pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

func parseHexUnit(name string) (rune, bool) {
	if len(name) < 6 || name[:2] != "_." {
		return 0, false
	}
	unit, err := strconv.ParseUint(name[2:6], 16, 16)
	return rune(unit), err == nil
}
