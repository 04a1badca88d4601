package trial

import (
	"encoding/json"
	"fmt"
	"math"
)

// What a trial has thousands of is an array in JSON, without the names of its fields: a comparison's file would be
// three times as large with them. The order of the fields is given with each MarshalJSON.

// The letters of outcomes are those of Bin's fields.
var (
	outcomeLetters = letters[Outcome]{Done: "d", NotFound: "f", Refused: "r", Unreached: "x", Unknown: "u"}
	actionLetters  = letters[Action]{Write: "w", Remove: "r", Look: "l"}
)

// MarshalJSON implements json.Marshaler: [key, client, node, action, version, outcome, called, took]. The action
// is w (write), r (remove) or l (look); the outcome d (done), f (not found), r (refused), x (unreached) or u
// (unknown); called is in µs since the load began, took in µs, -1 of a call that was never answered.
func (c Call) MarshalJSON() ([]byte, error) {
	took := c.Returned - c.Called
	if c.Returned == math.MaxInt64 {
		took = -1
	}
	return json.Marshal([]any{c.Key, c.Client, c.Node, actionLetters.of(c.Action), c.Version, outcomeLetters.of(c.Outcome), c.Called, took})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Call) UnmarshalJSON(data []byte) error {
	var action, outcome string
	var took Micros
	if err := fields(data, "a call", &c.Key, &c.Client, &c.Node, &action, &c.Version, &outcome, &c.Called, &took); err != nil {
		return err
	}
	c.Action, c.Outcome, c.Returned = actionLetters.meant(action), outcomeLetters.meant(outcome), c.Called+took
	if took < 0 {
		c.Returned = math.MaxInt64
	}
	return nil
}

// MarshalJSON implements json.Marshaler: [node, asked, took, failed, listed, ghosts, missing, behind, unhealed],
// and the instances that are back as a tenth if there are any. Asked is in µs since the load began, took in µs.
func (l List) MarshalJSON() ([]byte, error) {
	values := []any{l.Node, l.Asked, l.Answered - l.Asked, l.Failed, l.Listed, l.Ghosts, l.Missing, l.Behind, l.Unhealed}
	if len(l.Back) > 0 {
		values = append(values, l.Back)
	}
	return json.Marshal(values)
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *List) UnmarshalJSON(data []byte) error {
	var took Micros
	into := []any{&l.Node, &l.Asked, &took, &l.Failed, &l.Listed, &l.Ghosts, &l.Missing, &l.Behind, &l.Unhealed}
	err := fields(data, "a list", into...)
	if err != nil {
		err = fields(data, "a list", append(into, &l.Back)...)
	}
	l.Answered = l.Asked + took
	return err
}

// MarshalJSON implements json.Marshaler: [from, to, way, acked, delay], the last two in µs.
func (s Sighting) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{s.From, s.To, s.Way, s.Acked, s.Delay})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sighting) UnmarshalJSON(data []byte) error {
	return fields(data, "a sighting", &s.From, &s.To, &s.Way, &s.Acked, &s.Delay)
}

// MarshalJSON implements json.Marshaler: [id, canceled, last, node, gone], last and gone in µs since the load began.
func (d Departure) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{d.ID, d.Canceled, d.Last, d.Node, d.Gone})
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Departure) UnmarshalJSON(data []byte) error {
	return fields(data, "a departure", &d.ID, &d.Canceled, &d.Last, &d.Node, &d.Gone)
}

// fields decodes a JSON array of exactly as many values as there are pointers.
func fields(data []byte, what string, into ...any) error {
	values := append([]any(nil), into...)
	if err := json.Unmarshal(data, &values); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if len(values) != len(into) {
		return fmt.Errorf("%s has %d values, not %d: %.80s", what, len(values), len(into), data)
	}
	return nil
}

// letters abbreviates a closed set of words. Any other word stands for itself.
type letters[W ~string] map[W]string

func (l letters[W]) of(word W) string {
	if letter, ok := l[word]; ok {
		return letter
	}
	return string(word)
}

func (l letters[W]) meant(letter string) W {
	for word, abbreviation := range l {
		if abbreviation == letter {
			return word
		}
	}
	return W(letter)
}
