package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
)

var errChunk = errors.New("not a chunked body")

// readChunked reads a chunked body (RFC 9112, 7.1) from as much of it as has come. Not whole: more has to come. A long body is read
// when it may have ended, and not again with all that comes.
func readChunked(raw []byte) (body []byte, whole bool, err error) {
	if len(raw) > fewBytes && !bytes.HasSuffix(raw, []byte("\r\n\r\n")) {
		return nil, false, nil
	}
	r := bufio.NewReader(bytes.NewReader(raw))
	body, err = io.ReadAll(httputil.NewChunkedReader(r))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && len(raw) == 0:
		return nil, false, nil
	case err != nil:
		return nil, false, errChunk
	}
	for { // the trailer ends with an empty line
		line, err := r.ReadBytes('\n')
		switch {
		case err != nil:
			return nil, false, nil
		case len(bytes.TrimSpace(line)) == 0:
			if r.Buffered() > 0 {
				return nil, false, errSurplus
			}
			return body, true, nil
		}
	}
}
