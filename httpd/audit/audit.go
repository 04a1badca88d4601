// Package audit keeps a node's records of who did what: lines of JSON in a file, which is rotated, or on standard
// output. It never makes a caller wait and never fails a call: what cannot be written is counted.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// queueBytes bounds the lines that wait to be written.
const queueBytes = 4 << 20

// Log takes records. It is safe for concurrent use. A nil *Log drops them.
type Log struct {
	// Lost counts the records that were not written.
	Lost prometheus.Counter

	to    io.Writer
	file  *file // nil for standard output
	log   *slog.Logger
	tries sample

	mu      sync.Mutex
	lines   [][]byte      // not yet fetched by the goroutine
	bytes   int           // of all unwritten lines
	writing bool          // the goroutine runs
	idle    chan struct{} // closed when every line is written; nil before the first line
	losing  bool          // the newest line was lost
}

// Open opens the audit of a node. stdout is where it writes if the settings say so. A new file gets mode 0600.
func Open(c Config, stdout io.Writer, log *slog.Logger) (*Log, error) {
	l := &Log{to: stdout, log: log, Lost: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_audit_lost_total", Help: "Audit records that could not be written.",
	})}
	if c.File != Standard {
		f, err := openFile(c)
		if err != nil {
			return nil, err
		}
		l.file, l.to = f, f
	}
	return l, nil
}

// Bounds of a record's texts, in bytes, because callers can give names of any length.
const (
	maxWord   = 256
	maxText   = 1024
	maxGrants = 8 << 10 // for the rules of a role
)

// secretText finds the text of a token (package access) that a caller put into a name, even in capitals, as in names
// of applications. The part after the accessor is the secret.
var secretText = regexp.MustCompile(`(?i)(rct_[a-z2-7]{16}_)[a-z2-7]+(_[a-z2-7]*)?`)

// line returns a record as a line of the file, without the secrets of tokens.
func line(r api.AuditRecord) ([]byte, error) {
	for text, most := range map[*string]int{
		&r.RequestID: maxWord, &r.Principal: maxWord, &r.Accessor: maxWord, &r.Address: maxWord, &r.Operation: maxWord,
		&r.Resource: maxText, &r.Name: maxText, &r.Says: maxText, &r.Grants: maxGrants,
	} {
		*text = secretText.ReplaceAllString(order.CutText(*text, most), "${1}…")
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(r) // fails only for a year beyond 9999
	return line.Bytes(), err
}

// Record writes a record soon. It cuts texts that are too long.
func (l *Log) Record(r api.AuditRecord) {
	if l == nil {
		return
	}
	text, err := line(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.bytes+len(text) > queueBytes {
		err = errBehind
	}
	if err != nil {
		l.lost(err)
		return
	}
	l.lines = append(l.lines, text)
	l.bytes += len(text)
	if !l.writing {
		l.writing, l.idle = true, make(chan struct{})
		go l.writeAll()
	}
}

// RecordTry records a caller's failed try; of many such tries it records a sample.
func (l *Log) RecordTry(by Caller, r api.AuditRecord) {
	if l == nil {
		return
	}
	var kept bool
	text, _ := line(r)
	if r.Suppressed, kept = l.tries.admit(r.Time, by, r.Outcome+" "+r.Resource, len(text)); kept {
		l.Record(r)
	}
}

// writeAll writes lines until none are left.
func (l *Log) writeAll() {
	for {
		lines := l.next()
		if lines == nil {
			return
		}
		for _, line := range lines {
			_, err := l.to.Write(line)
			l.mu.Lock()
			l.bytes -= len(line)
			if err != nil {
				l.lost(err)
			} else if l.losing {
				l.losing = false
				l.log.Info("the audit is written again")
			}
			l.mu.Unlock()
		}
	}
}

// next fetches the waiting lines, or returns nil; then the next record starts the goroutine again.
func (l *Log) next() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	if lines == nil {
		l.writing = false
		close(l.idle)
	}
	return lines
}

var errBehind = errors.New("what is written to stands still")

// lost counts a lost line, and logs the first of a series. The caller holds mu.
func (l *Log) lost(err error) {
	l.Lost.Inc()
	if !l.losing {
		l.log.Warn("records of the audit are lost, which rollcall_audit_lost_total counts", "err", err)
	}
	l.losing = true
}

// Flush waits until every record has been written.
func (l *Log) Flush(ctx context.Context) {
	if l == nil {
		return
	}
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
