package httpd

import (
	"fmt"
	"io"
	"net/http"
)

// maxValue bounds the value of a key and the body of a transaction, in bytes.
const maxValue = 512 << 10

// readValue reads a body of at most maxValue bytes as it is.
func (c *call) readValue() ([]byte, error) {
	if c.r.ContentLength > maxValue {
		return nil, valueTooLarge(fmt.Sprintf("%d", c.r.ContentLength))
	}
	value, err := io.ReadAll(chargedReader{io.LimitReader(c.r.Body, maxValue+1), c.w})
	if err != nil {
		return nil, bodyError(err)
	}
	if len(value) > maxValue {
		return nil, valueTooLarge(fmt.Sprintf("more than %d", maxValue))
	}
	return value, nil
}

func valueTooLarge(size string) error {
	text := fmt.Sprintf("Request body(%s bytes) too large, max size: %d bytes. See docs/protocol/coordination.md.", size, maxValue)
	return &refusal{status: http.StatusRequestEntityTooLarge, text: text}
}
