package setting

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Set parses text, the form of flags, variables and scalars in files. The error says what would be right.
func (s Setting) Set(text string) error {
	if p, ok := s.Value.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return p.UnmarshalText([]byte(text))
	}
	switch s.Kind() {
	case "bool":
		return set(s, strconv.ParseBool, text, "true or false")
	case "duration":
		return s.setSpan(text)
	case "list":
		s.Value.Set(reflect.ValueOf(SplitList(text)))
	case "map":
		return s.setMap(text)
	case "text":
		s.Value.SetString(text)
	default:
		return s.setNumber(text)
	}
	return nil
}

func set[T any](s Setting, parse func(string) (T, error), text, want string) error {
	v, err := parse(text)
	if err != nil {
		return fmt.Errorf("%q is not %s", text, want)
	}
	s.Value.Set(reflect.ValueOf(v).Convert(s.Value.Type()))
	return nil
}

func (s Setting) setNumber(text string) error {
	bits := s.Value.Type().Bits()
	if s.Value.CanUint() {
		return set(s, func(text string) (uint64, error) { return strconv.ParseUint(text, 10, bits) }, text, "a number, zero or more")
	}
	return set(s, func(text string) (int64, error) { return strconv.ParseInt(text, 10, bits) }, text, "a number such as 2")
}

// setSpan sets a duration, given as one or as a number of units.
func (s Setting) setSpan(text string) error {
	unit := max(s.unit, 1)
	d, err := time.ParseDuration(text)
	switch {
	case err == nil && d%unit != 0:
		return fmt.Errorf("%q is not a whole number of %v", text, unit)
	case err == nil && s.Value.CanUint() && (d < 0 || s.Value.OverflowUint(uint64(d/unit))):
		return fmt.Errorf("%q is out of range", text)
	}
	return set(s, func(string) (int64, error) { return int64(d / unit), err }, text, "a duration with its unit, such as 500ms or 2s")
}

// setMap sets a map, or the text of one, which is kept as given.
func (s Setting) setMap(text string) error {
	const want = "of the form name=address,name=address"
	if s.Value.Kind() == reflect.Map {
		return set(s, ParseMap, text, want)
	}
	return set(s, func(text string) (string, error) { _, err := ParseMap(text); return text, err }, text, want)
}

// String is the inverse of Set.
func (s Setting) String() string {
	switch v := s.Value.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		return FormatMap(v)
	}
	if s.unit != 0 {
		return (time.Duration(s.Value.Convert(reflect.TypeFor[int64]()).Int()) * s.unit).String()
	}
	return fmt.Sprint(s.Value.Interface())
}

// JSON returns the value as in JSON documents: booleans and numbers as such, everything else as text.
func (s Setting) JSON() any {
	switch s.Kind() {
	case "bool":
		return s.Value.Bool()
	case "number":
		return json.Number(s.String())
	}
	return s.String()
}

// Check says what is wrong with the value, naming the key and what would be right.
func (s Setting) Check() error {
	text := s.String()
	switch {
	case s.Zero != "" && s.Value.IsZero():
		return nil
	case len(s.Words) > 0 && !slices.Contains(s.Words, text):
		return fmt.Errorf("%s: %q is not one of %q", s.Key, text, s.Words)
	case s.Min != "" && s.compare(s.Min) < 0 && s.Zero != "":
		return fmt.Errorf("%s: %s is below %s; 0 means %s", s.Key, text, s.Min, s.Zero)
	case s.Min != "" && s.compare(s.Min) < 0:
		return fmt.Errorf("%s: %s is below %s", s.Key, text, s.Min)
	case s.Max != "" && s.compare(s.Max) > 0:
		return fmt.Errorf("%s: %s is above %s", s.Key, text, s.Max)
	}
	return nil
}

// compare compares the value with a bound.
func (s Setting) compare(bound string) int {
	b := s
	b.Value = reflect.New(s.Value.Type()).Elem()
	b.must(bound)
	if s.Value.CanUint() {
		return cmp.Compare(s.Value.Uint(), b.Value.Uint())
	}
	return cmp.Compare(s.Value.Int(), b.Value.Int())
}

// must sets what a tag says. A tag that is wrong is a bug, which a test of all settings finds.
func (s Setting) must(text string) {
	if err := s.Set(text); err != nil {
		panic(fmt.Sprintf("tag of %s: %v", s.Key, err))
	}
}

// Check reports every mistake in the settings of a holder at once.
func Check(holder any) error {
	var errs []error
	for _, s := range Of(holder) {
		errs = append(errs, s.Check())
	}
	return errors.Join(errs...)
}

// Default returns a holder with its defaults.
func Default[T any]() T {
	var holder T
	for _, s := range Of(&holder) {
		if s.Default != "" {
			s.must(s.Default)
		}
	}
	return holder
}

// Fill sets each setting of a holder that is zero, and must not be, to its default. A zero that has a meaning stays.
func Fill(holder any) {
	for _, s := range Of(holder) {
		if s.Value.IsZero() && s.Default != "" && s.Check() != nil {
			s.must(s.Default)
		}
	}
}

// SplitList splits a comma-separated list, and drops white space and empty elements.
func SplitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// ParseMap parses name=value,name=value.
func ParseMap(text string) (map[string]string, error) {
	m := make(map[string]string)
	for _, part := range SplitList(text) {
		name, value, ok := strings.Cut(part, "=")
		if !ok || name == "" || value == "" {
			return nil, errors.New("no name=value: " + part)
		}
		m[name] = value
	}
	return m, nil
}

// FormatMap is the inverse of ParseMap, sorted by name.
func FormatMap(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+m[name])
	}
	return strings.Join(parts, ",")
}
