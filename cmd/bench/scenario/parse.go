package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
)

// ReadFile reads the scenario of a file.
func ReadFile(path string) (Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("read a scenario: %w", err)
	}
	return Parse(filepath.Base(path), text)
}

// Parse parses a scenario, and fills in the defaults. Unknown and repeated keys and values of the wrong kind are
// errors with their lines; if there are none of these, the error joins every invalid value, with its key.
func Parse(name string, text []byte) (Scenario, error) {
	s := defaults()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	switch err := dec.Decode(&s); {
	case errors.Is(err, io.EOF):
		return Scenario{}, fmt.Errorf("%s: is empty; want a scenario, see docs/scenarios.md", name)
	case err != nil:
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Scenario{}, fmt.Errorf("%s: holds more than one YAML document; want one scenario per file", name)
	}
	s.Title = cmp.Or(s.Title, s.Name)
	if err := asError(name, mistakes(s)); err != nil {
		return Scenario{}, err
	}
	return s, nil
}

// UnmarshalYAML implements yaml.Unmarshaler, to name the line.
func (s *Span) UnmarshalYAML(n *yaml.Node) error { return atLine(n, s.UnmarshalText([]byte(n.Value))) }

// UnmarshalYAML implements yaml.Unmarshaler, to name the line.
func (m *Moment) UnmarshalYAML(n *yaml.Node) error {
	return atLine(n, m.UnmarshalText([]byte(n.Value)))
}

func atLine(n *yaml.Node, err error) error {
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// defaults returns a scenario with every default.
func defaults() Scenario {
	return Scenario{
		Datacenters: 1,
		Load: Load{
			Instances:  300,
			Heartbeat:  Span(time.Second),
			Lease:      Span(3 * time.Second),
			Registers:  5,
			Writes:     60,
			Reads:      150,
			Fetches:    5,
			Deltas:     20,
			Watchers:   6,
			Sightings:  4,
			OwnKeys:    12,
			SharedKeys: 6,
			Sealed:     20,
		},
	}
}

// rateFields returns the rates of a load that a storm may change, by their names in files.
func rateFields(l *Load) map[string]*float64 {
	return map[string]*float64{
		"registers": &l.Registers, "writes": &l.Writes, "reads": &l.Reads, "fetches": &l.Fetches, "deltas": &l.Deltas, "sealed": &l.Sealed,
	}
}

// With returns the load with other rates, by their names in files, as in a storm. Names that a storm cannot have are
// ignored.
func (l Load) With(rates map[string]float64) Load {
	of := rateFields(&l)
	for name, rate := range rates {
		if to, ok := of[name]; ok {
			*to = rate
		}
	}
	return l
}
