package trial

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// Rows are records that a trial has thousands of. In JSON each of them is an array, with its fields in the order of the
// struct and without names: with names a comparison's file would be three times as large. Times are in µs since the
// load began. A time that ends a span (Returned, Answered) is written as the length of the span, or -1 if it never
// ended. Actions and outcomes are one letter each. An empty list at the end is left out.
type Rows[T any] []T

// The letters of outcomes, as Bin's fields use them, and of actions.
var letters = map[string]string{
	string(Done): "d", string(NotFound): "f", string(Refused): "r", string(Unreached): "x", string(Unknown): "u",
	string(Write): "w", string(Remove): "r", string(Look): "l",
}

// MarshalJSON implements json.Marshaler.
func (r Rows[T]) MarshalJSON() ([]byte, error) {
	if r == nil {
		return []byte("null"), nil
	}
	rows := make([][]any, len(r))
	for i := range r {
		rows[i] = rowOf(reflect.ValueOf(r[i]))
	}
	return json.Marshal(rows)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rows[T]) UnmarshalJSON(data []byte) error {
	var rows []json.RawMessage
	if err := json.Unmarshal(data, &rows); err != nil || rows == nil {
		return err
	}
	*r = make(Rows[T], len(rows))
	for i, row := range rows {
		if err := readRow(row, reflect.ValueOf(&(*r)[i]).Elem()); err != nil {
			return err
		}
	}
	return nil
}

func rowOf(r reflect.Value) (row []any) {
	for i := range r.NumField() {
		switch v := r.Field(i).Interface().(type) {
		case Action, Outcome:
			word := fmt.Sprint(v)
			row = append(row, cmp.Or(letters[word], word))
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
	return row
}

// beginOf returns when the span that field i of a record ends began.
func beginOf(r reflect.Value, i int) (begun Micros, ends bool) {
	if r.Type().Field(i).Tag.Get("check") != "end" {
		return 0, false
	}
	return Micros(r.Field(i - 1).Int()), true
}

// readRow fills in a record from an array with as many values as it has fields. A list at the end may be missing.
func readRow(data []byte, r reflect.Value) error {
	var values []any
	for i := range r.NumField() {
		values = append(values, r.Field(i).Addr().Interface())
	}
	fields, what := len(values), "a "+strings.ToLower(r.Type().Name())
	if err := json.Unmarshal(data, &values); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if short := r.Field(fields-1).Kind() == reflect.Slice && len(values) == fields-1; len(values) != fields && !short {
		return fmt.Errorf("%s has %d values, not %d: %.80s", what, len(values), fields, data)
	}
	restore(r)
	return nil
}

// restore turns letters into words, and lengths of spans into their ends.
func restore(r reflect.Value) {
	for i := range r.NumField() {
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
