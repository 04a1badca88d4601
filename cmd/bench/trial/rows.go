package trial

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
)

// Records that a trial has thousands of are arrays in JSON, with their fields in the order of the struct and without
// names: with names a comparison's file would be three times as large. Times are in µs since the load began. A time
// that ends a span (Returned, Answered) is written as the length of the span, or -1 if it never ended. Actions and
// outcomes are one letter each. An empty list at the end is left out.

// The letters of outcomes, as Bin's fields use them.
var letters = map[string]string{
	string(Done): "d", string(NotFound): "f", string(Refused): "r", string(Unreached): "x", string(Unknown): "u",
	string(Write): "w", string(Remove): "r", string(Look): "l",
}

// MarshalJSON implements json.Marshaler: [key, client, node, action, version, outcome, called, took].
func (c Call) MarshalJSON() ([]byte, error) { return marshalRow(c) }

// UnmarshalJSON implements json.Unmarshaler.
func (c *Call) UnmarshalJSON(data []byte) error { return readRow(data, "a call", c) }

// MarshalJSON implements json.Marshaler: [node, asked, took, failed, listed, ghosts, missing, behind, unhealed, back].
func (l List) MarshalJSON() ([]byte, error) { return marshalRow(l) }

// UnmarshalJSON implements json.Unmarshaler.
func (l *List) UnmarshalJSON(data []byte) error { return readRow(data, "a list", l) }

// MarshalJSON implements json.Marshaler: [from, to, way, acked, delay].
func (s Sighting) MarshalJSON() ([]byte, error) { return marshalRow(s) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sighting) UnmarshalJSON(data []byte) error { return readRow(data, "a sighting", s) }

// MarshalJSON implements json.Marshaler: [id, canceled, last, node, gone].
func (d Departure) MarshalJSON() ([]byte, error) { return marshalRow(d) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Departure) UnmarshalJSON(data []byte) error { return readRow(data, "a departure", d) }

// MarshalJSON implements json.Marshaler: [operation, home, calls, answered, gap, open].
func (c Client) MarshalJSON() ([]byte, error) { return marshalRow(c) }

// UnmarshalJSON implements json.Unmarshaler.
func (c *Client) UnmarshalJSON(data []byte) error { return readRow(data, "a client", c) }

// MarshalJSON implements json.Marshaler: [cancel, node, outcome, doubtful, called, took].
func (w SealWrite) MarshalJSON() ([]byte, error) { return marshalRow(w) }

// UnmarshalJSON implements json.Unmarshaler.
func (w *SealWrite) UnmarshalJSON(data []byte) error {
	return readRow(data, "a write of a sealed instance", w)
}

func marshalRow(record any) ([]byte, error) {
	r := reflect.ValueOf(record)
	var row []any
	for i := range r.NumField() {
		switch v := r.Field(i).Interface().(type) {
		case Action:
			row = append(row, letterOf(string(v)))
		case Outcome:
			row = append(row, letterOf(string(v)))
		case []string:
			if len(v) > 0 {
				row = append(row, v)
			}
		case Micros:
			if begun, ends := beginOf(r, i); ends && v == math.MaxInt64 {
				v = -1
			} else if ends {
				v -= begun
			}
			row = append(row, v)
		default:
			row = append(row, v)
		}
	}
	return json.Marshal(row)
}

func letterOf(word string) string {
	if letter, ok := letters[word]; ok {
		return letter
	}
	return word
}

// beginOf returns when the span that field i of a record ends began.
func beginOf(r reflect.Value, i int) (begun Micros, ends bool) {
	if name := r.Type().Field(i).Name; name == "Returned" || name == "Answered" && r.Field(i).Type() == reflect.TypeFor[Micros]() {
		return Micros(r.Field(i - 1).Int()), true
	}
	return 0, false
}

// readRow fills in a record from an array with as many values as it has fields. A list at the end may be missing.
func readRow(data []byte, what string, into any) error {
	r := reflect.ValueOf(into).Elem()
	var values []any
	for i := range r.NumField() {
		values = append(values, r.Field(i).Addr().Interface())
	}
	fields := len(values)
	if err := json.Unmarshal(data, &values); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if short := r.Field(fields-1).Kind() == reflect.Slice && len(values) == fields-1; len(values) != fields && !short {
		return fmt.Errorf("%s has %d values, not %d: %.80s", what, len(values), fields, data)
	}
	for i := range fields {
		switch v := r.Field(i).Addr().Interface().(type) {
		case *Action:
			*v = wordOf(*v, Write, Remove, Look)
		case *Outcome:
			*v = wordOf(*v, Outcomes...)
		case *Micros:
			if begun, ends := beginOf(r, i); ends && *v == -1 {
				*v = math.MaxInt64
			} else if ends {
				*v += begun
			}
		}
	}
	return nil
}

// wordOf returns the word that a letter stands for. Any other word stands for itself.
func wordOf[W ~string](letter W, words ...W) W {
	for _, word := range words {
		if letters[string(word)] == string(letter) {
			return word
		}
	}
	return letter
}
