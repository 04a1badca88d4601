package api

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Settings are those that the whole cluster shares, because they decide how leases end: each by its key in the
// configuration, in the form of flags (true, 0.85, 30s).
type Settings map[string]string

// UnmarshalJSON implements json.Unmarshaler: numbers keep their spelling.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var values map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&values); err != nil {
		return err
	}
	*s = make(Settings, len(values))
	for key, value := range values {
		(*s)[key] = fmt.Sprint(value)
	}
	return nil
}
