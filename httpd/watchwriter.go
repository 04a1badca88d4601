package httpd

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	fullPiece = 32 << 10 // what is collected before it is written
	maxPiece  = 64 << 10 // what is written at once, under one time limit
)

var pieces = sync.Pool{New: func() any {
	b := make([]byte, 0, maxPiece)
	return &b
}}

// watchWriter collects what a watcher is sent and writes it in pieces, each with a time limit of its
// own: the server's limit for a whole answer means nothing to one that has no end. A buffer is held
// only while there is something to send.
type watchWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	pace    pace
	pooled  *[]byte
	buf     []byte
	slow    bool // a piece took longer than pace.slow
}

func newWatchWriter(w http.ResponseWriter, p pace) *watchWriter {
	return &watchWriter{w: w, control: http.NewResponseController(w), pace: p}
}

// begin gets a buffer.
func (o *watchWriter) begin() {
	if o.pooled == nil {
		o.pooled = pieces.Get().(*[]byte)
		o.buf = (*o.pooled)[:0]
	}
}

// pause says that nothing will be sent for a while. A time limit would end a stream of HTTP/2 then,
// and the server has set one for the request. A failure shows at the next write.
func (o *watchWriter) pause() {
	_ = o.control.SetWriteDeadline(time.Time{})
	o.release()
}

// end leaves net/http its time to end the answer.
func (o *watchWriter) end() {
	_ = o.control.SetWriteDeadline(time.Now().Add(o.pace.cut)) // else the connection has broken
	o.release()
}

// release gives the buffer back, unless one large change made it grow.
func (o *watchWriter) release() {
	if o.pooled != nil && cap(o.buf) <= 2*maxPiece {
		*o.pooled = o.buf
		pieces.Put(o.pooled)
	}
	o.pooled, o.buf = nil, nil
}

// full says that what was collected is to be written.
func (o *watchWriter) full() bool { return len(o.buf) >= fullPiece }

// flush writes what was collected. It fails when the reader took nothing for pace.cut, or went away.
func (o *watchWriter) flush() error {
	for rest := o.buf; len(rest) > 0; {
		n := min(len(rest), maxPiece)
		if err := o.piece(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	o.buf = o.buf[:0]
	return nil
}

func (o *watchWriter) piece(p []byte) error {
	begun := time.Now()
	err := o.control.SetWriteDeadline(begun.Add(o.pace.cut))
	if err == nil {
		_, err = o.w.Write(p)
	}
	if err == nil {
		err = o.control.Flush()
	}
	took := time.Since(begun)
	o.slow = o.slow || took > o.pace.slow
	if err != nil {
		o.pooled = nil // HTTP/2 may still read from it
	}
	if err != nil && took >= o.pace.cut {
		return fmt.Errorf("%w for %v: %w", errReadsNothing, o.pace.cut, err)
	}
	return err
}

// errReadsNothing: a watcher was cut off.
var errReadsNothing = errors.New("the watcher read nothing")

// pieceLimit is how long a client may take for a piece of an answer. The whole may take any time.
const pieceLimit = 30 * time.Second

// pieceWriter gives each write a time limit of its own: the server's limit for a whole answer is for
// short ones.
type pieceWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func newPieceWriter(w http.ResponseWriter) *pieceWriter {
	return &pieceWriter{w: w, control: http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p *pieceWriter) Write(piece []byte) (int, error) {
	p.begun = true
	_ = p.control.SetWriteDeadline(time.Now().Add(pieceLimit)) // else the connection has broken
	return p.w.Write(piece)
}
