package eureka

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// value reads any JSON value into the form that encoding/json gives it with UseNumber.
func (s *scanner) value() any {
	switch c := s.peek(); c {
	case '{':
		object := map[string]any{}
		for m := s.object(); m.next(); {
			key := string(m.key)
			object[key] = s.value()
		}
		return object
	case '[':
		list := []any{}
		for e := s.array(); e.next(); {
			list = append(list, s.value())
		}
		return list
	case '"':
		text, _ := s.scalar()
		return string(text)
	default:
		text, given := s.scalar()
		switch {
		case !given:
			return nil
		case c == 't', c == 'f':
			return c == 't'
		}
		return json.Number(text)
	}
}

// FuzzScannerAgainstEncodingJSON checks that the scanner accepts only what encoding/json accepts, reads the same
// value, and otherwise refuses only what its comment lists.
func FuzzScannerAgainstEncodingJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e+3,true,false,null,"x\u00e9\ud83d\ude00\n"],"b":{"c":{}}}`, `[]`, ` "\\" `, `{"a":1,"a":2}`,
		`"\ud800"`, "\"\xff\"", strings.Repeat("[", 65) + strings.Repeat("]", 65), `-0`, `01`, `1e5`, "\x00", `{"a":1,}`, `[1 2]`, `nul`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScanner(data)
		got := s.value()
		err := s.expectEnd()
		var want any
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		decodes := dec.Decode(&want) == nil && json.Valid(data)
		switch {
		case err != nil && !errors.Is(err, ErrUnparsable):
			t.Fatalf("an error of its own: %v", err)
		case err == nil && !decodes:
			t.Fatalf("encoding/json refuses %q", data)
		case err == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("read %q as %#v, encoding/json as %#v", data, got, want)
		case err != nil && decodes && !stricter(data, err):
			t.Fatalf("refused %q: %v", data, err)
		}
		skip := newScanner(data)
		skip.skip()
		skipErr := skip.expectEnd()
		need.That(t, (skipErr == nil) == (err == nil), "%q: read with %v, skipped with %v", data, err, skipErr)
	})
}

// stricter reports whether an error is one that only the scanner's strictness causes.
func stricter(data []byte, err error) bool {
	for _, reason := range []string{"duplicate key", "nested too deeply", "half a surrogate pair"} {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return !utf8.Valid(data)
}

func TestXMLNamesAreEscapedAndBack(t *testing.T) {
	tests := []struct{ key, name string }{
		{"zone", "zone"}, {"management.port", "management.port"}, {"owner_team", "owner__team"}, {"$a", "_-a"}, {"a b", "a_.0020b"},
		{"9x", "_.0039x"}, {"x9", "x9"}, {"a:b", "a_.003ab"}, {"é", "é"}, {"\U0001F600", "_.d83d_.de00"}, {"×", "_.00d7"}, {"\x00", "_.0000"},
	}
	for _, tt := range tests {
		expect.Equal(t, string(appendName(nil, tt.key)), tt.name, "%q: written as", tt.key)
		expect.Equal(t, parseName(tt.name), tt.key, "%q: read as", tt.name)
	}
}

func TestXMLNamesThatWereNeverEscapedAreReadAsTheyAre(t *testing.T) {
	tests := []struct{ name, key string }{
		{"a_b", "a_b"}, {"_", "_"}, {"a_", "a_"}, {"_.", "_."}, {"_.12", "_.12"}, {"_.12g4", "_.12g4"}, {"_.00E9", "é"},
		{"_.d83d", "\uFFFD"}, {"_.d83dx", "\uFFFDx"}, {"_.d83d_.0041", "\uFFFDA"}, {"___", "__"},
	}
	for _, tt := range tests {
		expect.Equal(t, parseName(tt.name), tt.key, "%q: read as", tt.name)
	}
}
