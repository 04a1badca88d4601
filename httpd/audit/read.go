package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Query selects records. A zero field selects all.
type Query struct {
	Since     time.Time
	Principal string
	Resource  string
	Outcome   string
	Limit     int // maximum number of records, the newest; at least 1
}

func (q *Query) wants(r *api.AuditRecord) bool {
	return !r.Time.Before(q.Since) && (q.Principal == "" || q.Principal == r.Principal) &&
		(q.Resource == "" || q.Resource == r.Resource) && (q.Outcome == "" || q.Outcome == r.Outcome)
}

// MaxRead bounds what Read returns, in bytes of the file; beyond that it returns the newest.
const MaxRead = 8 << 20

// maxLine bounds a line that is read, in bytes: no record is longer.
const maxLine = 64 << 10

// ErrNotKept says that records cannot be read back.
var ErrNotKept = errors.New("this node keeps no audit that can be read back: it goes to standard output (audit.file)")

// Read returns records, newest last, including those recorded just before the call. It skips lines that are not
// records.
func (l *Log) Read(ctx context.Context, q Query) ([]api.AuditRecord, error) {
	if l == nil || l.file == nil {
		return nil, ErrNotKept
	}
	soon, cancel := context.WithTimeout(ctx, time.Second) // under load there is always something to write
	l.Flush(soon)
	cancel()
	files, err := l.file.openAll()
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	var records []api.AuditRecord
	left := MaxRead
	for _, f := range files { // newest first
		if last, err := f.Stat(); err == nil && last.ModTime().Before(q.Since) {
			break // so are all older files
		}
		some, bytes, err := newestOf(ctx, f, q, q.Limit-len(records), left)
		if err != nil {
			return nil, err
		}
		records = append(some, records...)
		if left -= bytes; len(records) >= q.Limit || left <= 0 {
			break
		}
	}
	if records == nil {
		records = []api.AuditRecord{} // shown as an empty list
	}
	return records, nil
}

// lineBegin is the form of a line's beginning, up to its second.
const lineBegin = `{"time":"2006-01-02T15:04:05`

// isBefore reports whether a line is from a second before the one that lines since begin with. Whoever follows the
// audit asks for the newest records each second: this is a hundred times cheaper than decoding a line.
func isBefore(line []byte, since string) bool {
	return len(line) > len(since) && bytes.HasPrefix(line, []byte(lineBegin[:9])) && string(line[:len(since)]) < since
}

// newestOf returns the newest selected records of a file, up to the number and bytes that there is room for.
func newestOf(ctx context.Context, from io.Reader, q Query, limit, room int) (records []api.AuditRecord, bytes int, err error) {
	in := bufio.NewReaderSize(from, maxLine)
	since := q.Since.UTC().Format(lineBegin)
	var sizes []int
	for ctx.Err() == nil {
		line, err := in.ReadSlice('\n')
		whole := err == nil
		for errors.Is(err, bufio.ErrBufferFull) { // not a record
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return records, bytes, err // an incomplete last line is being written, or was cut off
		}
		var r api.AuditRecord
		if whole && isBefore(line, since) {
			continue
		}
		if !whole || json.Unmarshal(line, &r) != nil || !q.wants(&r) {
			continue
		}
		records, sizes, bytes = append(records, r), append(sizes, len(line)), bytes+len(line)
		for len(records) > limit || bytes > room && len(records) > 1 {
			bytes -= sizes[0]
			records[0] = api.AuditRecord{} // its texts can be freed
			records, sizes = records[1:], sizes[1:]
		}
	}
	return nil, 0, ctx.Err()
}
