package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Config holds the settings of an audit.
type Config struct {
	File     string `key:"audit.file" default:"audit.log" help:"file that records each change and each denied call, one line of JSON each; a relative path is in data.dir; -: standard output, which cannot be read back"`
	MaxBytes int64  `key:"audit.max-bytes" default:"33554432" min:"65536" help:"size in bytes at which audit.file is rotated to audit.file.1, that one to audit.file.2, and so on"`
	Keep     int    `key:"audit.keep" default:"8" min:"1" help:"how many older audit files are kept"`
}

// Standard is the Config.File that stands for standard output.
const Standard = "-"

// file is a file that is appended to and rotated. Only one goroutine writes.
type file struct {
	path     string
	maxBytes int64
	keep     int

	names sync.Mutex // held while files are renamed, and while a reader opens them
	f     *os.File   // nil if it could not be reopened
	size  int64
	torn  bool // the last line is incomplete
}

func openFile(c Config) (*file, error) {
	w := &file{path: c.File, maxBytes: c.MaxBytes, keep: c.Keep}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("audit.file: %w", err)
	}
	return w, nil
}

// open opens the newest file. A line that a crash cut off is ended with the next record.
func (w *file) open() error {
	f, err := os.OpenFile(w.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	last := []byte{'\n'}
	if err == nil && size > 0 {
		_, err = f.ReadAt(last, size-1)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.f, w.size, w.torn = f, size, last[0] != '\n'
	return nil
}

// Write implements io.Writer for one line. After an error the line may be there in part, and the next one is tried
// again.
func (w *file) Write(line []byte) (int, error) {
	if w.f != nil && w.size > 0 && w.size+int64(len(line)) > w.maxBytes {
		if err := w.rotate(); err != nil && w.f == nil {
			return 0, err
		}
	}
	if w.f == nil {
		if err := w.open(); err != nil {
			return 0, err
		}
	}
	if w.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := w.f.Write(line)
	w.size += int64(n)
	if n > 0 {
		w.torn = line[n-1] != '\n'
	}
	return n, err
}

// rotate begins a new file. If the files cannot be renamed it goes on with the current one.
func (w *file) rotate() error {
	w.names.Lock()
	defer w.names.Unlock()
	for i := w.keep; i > 0; i-- {
		if err := os.Rename(w.older(i-1), w.older(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err := w.f.Close()
	w.f = nil
	return errors.Join(err, w.open())
}

// older returns the path of a file by its age; 0 is the newest.
func (w *file) older(i int) string {
	if i == 0 {
		return w.path
	}
	return fmt.Sprintf("%s.%d", w.path, i)
}

// openAll opens the files for reading, newest first. They stay the same whatever is renamed meanwhile.
func (w *file) openAll() (files []*os.File, err error) {
	w.names.Lock()
	defer w.names.Unlock()
	for i := range w.keep + 1 {
		f, err := os.Open(w.older(i))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			closeAll(files)
			return nil, err
		default:
			files = append(files, f)
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
