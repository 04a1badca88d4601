package consul

import (
	"errors"
	"fmt"
)

// Malformed is what is wrong with a request that cannot be understood. Consul's agent answers 400 with
// the text.
type Malformed string

// Error implements error.
func (m Malformed) Error() string { return string(m) }

// Rejected says why a request that was understood cannot be done. Consul's servers answer 500 with the
// text.
type Rejected string

// Error implements error.
func (r Rejected) Error() string { return string(r) }

func malformed(format string, args ...any) error { return Malformed(fmt.Sprintf(format, args...)) }

// undecodable words an error of the decoder as Consul does.
func undecodable(err error) error {
	var said Malformed
	if errors.As(err, &said) {
		return said
	}
	return malformed("Request decode failed: %v", err)
}

func rejected(format string, args ...any) error { return Rejected(fmt.Sprintf(format, args...)) }
