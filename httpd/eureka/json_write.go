package eureka

import (
	"strconv"
	"unicode/utf8"
)

// AppendText appends a JSON string, as the documents of this package have them, for documents that
// hold such documents.
func AppendText(dst []byte, text string) []byte { return appendQuoted(dst, text) }

// appendQuoted appends a JSON string. Bytes that are not UTF-8 become U+FFFD: one bad value must
// not make a document with a thousand instances unreadable.
func appendQuoted(dst []byte, text string) []byte {
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
	return appendQuoted(dst, text)
}

// appendMember appends a member with a text value, key being the literal `,"name":`; an empty text
// is omitted.
func appendMember(dst []byte, key, text string) []byte {
	if text == "" {
		return dst
	}
	return appendQuoted(append(dst, key...), text)
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
