package report

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// samples are values at every 100 ms from 0 on; NaN where there is none. In JSON that is null, and values are rounded
// to what a plot can show.
type samples []float64

// MarshalJSON implements json.Marshaler.
func (s samples) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, v := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		if math.IsNaN(v) {
			b.WriteString("null")
			continue
		}
		b.WriteString(strconv.FormatFloat(significant(v), 'f', -1, 64))
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}

// noSamples are as many as fit between 0 and a moment, none of them known.
func noSamples(until trial.Micros) samples {
	s := make(samples, max(0, slot(until-1)+1))
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}

// slot is the number of the 100 ms in which a moment lies.
func slot(at trial.Micros) int {
	return int(math.Floor(float64(at) / float64(trial.BinLength/time.Microsecond)))
}

// set puts a value into a slot, if there is such a slot.
func (s samples) set(slot int, value float64) {
	if slot >= 0 && slot < len(s) {
		s[slot] = value
	}
}

// raise makes a slot hold at least a value.
func (s samples) raise(slot int, value float64) {
	if slot >= 0 && slot < len(s) && !(s[slot] >= value) {
		s[slot] = value
	}
}

// shows reports whether any value is above 0.
func (s samples) shows() bool {
	for _, v := range s {
		if v > 0 {
			return true
		}
	}
	return false
}
