package httpd

import (
	"io"
	"net/http"
	"time"
)

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
