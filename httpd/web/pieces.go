package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Sizes of pieces in bytes.
const (
	fullPiece = 32 << 10 // collected before it is written
	maxPiece  = 64 << 10 // written at once, under one time limit
)

var pieces = sync.Pool{New: func() any {
	b := make([]byte, 0, maxPiece)
	return &b
}}

// StreamWriter collects what a watcher is sent and writes it in pieces, each with its own time limit: the server's
// limit for a whole response is useless for an endless one. A buffer is held only while there is something to send.
type StreamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	pace    Pace
	pooled  *[]byte
	Buf     []byte
	Slow    bool // a piece took longer than Pace.Slow
}

// NewStreamWriter returns a writer that sends to w.
func NewStreamWriter(w http.ResponseWriter, p Pace) *StreamWriter {
	if resp := responseUnder(w); resp != nil {
		resp.Waited = true
	}
	return &StreamWriter{w: w, control: http.NewResponseController(w), pace: p}
}

// TakeBuffer gets a buffer.
func (o *StreamWriter) TakeBuffer() {
	if o.pooled == nil {
		o.pooled = pieces.Get().(*[]byte)
		o.Buf = (*o.pooled)[:0]
	}
}

// Pause announces that nothing will be sent for a while. The request's time limit, set by the server, would end an
// HTTP/2 stream then. A failure shows at the next write.
func (o *StreamWriter) Pause() {
	_ = o.control.SetWriteDeadline(time.Time{})
	o.release()
}

// Finish gives net/http time to end the response.
func (o *StreamWriter) Finish() {
	_ = o.control.SetWriteDeadline(time.Now().Add(o.pace.Cut)) // fails only if the connection has broken
	o.release()
}

// release gives the buffer back, unless one large change made it grow.
func (o *StreamWriter) release() {
	if o.pooled != nil && cap(o.Buf) <= 2*maxPiece {
		*o.pooled = o.Buf
		pieces.Put(o.pooled)
	}
	o.pooled, o.Buf = nil, nil
}

// Full reports whether enough was collected for a write.
func (o *StreamWriter) Full() bool { return len(o.Buf) >= fullPiece }

// Flush writes what was collected. It fails when the reader took nothing for pace.cut, or went away.
func (o *StreamWriter) Flush() error {
	for rest := o.Buf; len(rest) > 0; {
		n := min(len(rest), maxPiece)
		if err := o.piece(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	o.Buf = o.Buf[:0]
	return nil
}

func (o *StreamWriter) piece(p []byte) error {
	begun := time.Now()
	err := o.control.SetWriteDeadline(begun.Add(o.pace.Cut))
	if err == nil {
		_, err = o.w.Write(p)
	}
	if err == nil {
		err = o.control.Flush()
	}
	took := time.Since(begun)
	o.Slow = o.Slow || took > o.pace.Slow
	if err != nil {
		o.pooled = nil // HTTP/2 may still read from it
	}
	if err != nil && took >= o.pace.Cut {
		return fmt.Errorf("%w for %v: %w", ErrReadsNothing, o.pace.Cut, err)
	}
	return err
}

// ErrReadsNothing means that a watcher was cut off.
var ErrReadsNothing = errors.New("the watcher read nothing")

// PieceLimit is how long a client may take to read a piece of a response. The whole may take any time.
const PieceLimit = 30 * time.Second

// pieceWriter gives each write its own time limit: the server's limit for a whole response is meant for short ones.
type pieceWriter struct {
	w       io.Writer
	control *http.ResponseController
	Begun   bool
}

// NewPieceWriter writes to w in pieces.
func NewPieceWriter(w http.ResponseWriter) *pieceWriter {
	return &pieceWriter{w: w, control: http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p *pieceWriter) Write(piece []byte) (int, error) {
	p.Begun = true
	_ = p.control.SetWriteDeadline(time.Now().Add(PieceLimit)) // fails only if the connection has broken
	return p.w.Write(piece)
}
