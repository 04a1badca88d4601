package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Span is a duration, as 15s or 100ms in files and in JSON.
type Span time.Duration

// String is the span as in files.
func (s Span) String() string { return time.Duration(s).String() }

// Duration is the span as a duration.
func (s Span) Duration() time.Duration { return time.Duration(s) }

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration; want one such as 15s or 100ms", text)
	}
	*s = Span(d)
	return nil
}

// Moment is a time within a trial: a share of its length ("20%"), so that it fits long and short trials, or
// a duration ("3s").
type Moment struct {
	Percent float64 // of the length, if Fixed is 0
	Fixed   time.Duration
}

// In is the moment in a trial of a length.
func (m Moment) In(length time.Duration) time.Duration {
	if m.Fixed != 0 {
		return m.Fixed
	}
	return time.Duration(m.Percent / 100 * float64(length))
}

// String is the moment as in files.
func (m Moment) String() string {
	if m.Fixed != 0 {
		return m.Fixed.String()
	}
	return strconv.FormatFloat(m.Percent, 'f', -1, 64) + "%"
}

// MarshalText implements encoding.TextMarshaler, for JSON and YAML.
func (m Moment) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for JSON and YAML.
func (m *Moment) UnmarshalText(text []byte) error {
	if share, ok := strings.CutSuffix(string(text), "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return fmt.Errorf("%q is no share; want one from 0%% to 100%%", text)
		}
		*m = Moment{Percent: percent}
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no time of a trial; want a share such as 20%%, or a duration such as 3s", text)
	}
	*m = Moment{Fixed: d}
	return nil
}
