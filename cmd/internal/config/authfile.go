package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	maxBytes = 4 << 20 // of a file: some 15,000 tokens
	// checkInterval is how often the file is read. A change is in force after two checks, within 5 s.
	checkInterval = time.Second
)

// loadAuthFile reads a file once.
func loadAuthFile(path string) (*access.Table, error) {
	data, err := certfiles.ReadPrivate(path, maxBytes)
	if err != nil {
		return nil, err
	}
	content, err := parseComplete(path, data)
	if err != nil {
		return nil, err
	}
	content.Revision = 1
	return access.TableOf(content)
}

// parseComplete also rejects a truncated file, as a full disk leaves it, which might parse.
func parseComplete(path string, data []byte) (access.Content, error) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return access.Content{}, fmt.Errorf("%s is empty", path)
	case data[len(data)-1] != '\n':
		return access.Content{}, fmt.Errorf("%s is cut off: its last line has no end", path)
	}
	return ParseAuthFile(path, data)
}

// AuthFile is a file that is in use: the newest content of it that could be read. Safe for concurrent use.
type AuthFile struct {
	// Changed is called with what was in force and what is now. Set it before Run.
	Changed func(old, now *access.Table)

	path  string
	log   *slog.Logger
	state atomic.Pointer[state]

	mu         sync.Mutex
	seen, used look // the newest, and the one that state was made from
}

// state is what is in force.
type state struct {
	table   *access.Table
	digest  string
	failure string // why the newest contents are not in force; "" if they are
}

// look is what one look at the file found.
type look struct {
	sum     [sha256.Size]byte
	failure string
}

// OpenAuthFile reads a file for the first time. Later failures leave in force what was read before.
func OpenAuthFile(path string, log *slog.Logger) (*AuthFile, error) {
	s := &AuthFile{path: path, log: log}
	t, err := loadAuthFile(path)
	if err != nil {
		return nil, err
	}
	s.state.Store(&state{table: t, digest: t.Digest()})
	return s, nil
}

// Table returns the roles and tokens in force. Its revision grows with each change.
func (s *AuthFile) Table() *access.Table { return s.state.Load().table }

// Digest returns the digest of what is in force, see access.Table.Digest.
func (s *AuthFile) Digest() string { return s.state.Load().digest }

// Failure returns what is wrong with the file's current contents, which are therefore not in force, or "".
func (s *AuthFile) Failure() string { return s.state.Load().failure }

// Metrics returns the metrics of the file.
func (s *AuthFile) Metrics() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_auth_file_error", Help: "1 while auth.file is refused (unreadable, invalid, or suddenly without tokens), and its last accepted content is in force.",
	}, func() float64 {
		if s.Failure() != "" {
			return 1
		}
		return 0
	})
}

// Run checks the file at intervals until ctx ends. It compares contents, because a link may lead to another file, and
// a change may leave size and time as they were.
func (s *AuthFile) Run(ctx context.Context) {
	wait.Every(ctx, checkInterval, func(time.Time) { s.check(false) })
}

// Reload reads the file at once, and reports whether other roles and tokens are in force now.
func (s *AuthFile) Reload() (changed bool) { return s.check(true) }

// check uses contents that were not used yet once two looks in a row found them, or with now at once: a file that is
// being written is not judged before it is complete.
func (s *AuthFile) check(now bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found look
	data, err := certfiles.ReadPrivate(s.path, maxBytes)
	if err != nil {
		found.failure = err.Error()
	} else {
		found.sum = sha256.Sum256(data)
	}
	stayed := found == s.seen
	s.seen = found
	if found == s.used || !stayed && !now {
		return false
	}
	s.used = found
	return s.use(data, err)
}

// use takes over what was read, if it could be.
func (s *AuthFile) use(data []byte, err error) (changed bool) {
	old := s.state.Load()
	var content access.Content
	var next *access.Table
	if err == nil {
		content, err = parseComplete(s.path, data)
	}
	switch { // contents that are more often an accident than intended are refused
	case err != nil:
	case len(content.Tokens) == 0 && len(old.table.Tokens) > 0:
		err = fmt.Errorf("%s no longer has any of its %d tokens; if that is intended, start the node again", s.path, len(old.table.Tokens))
	case content.Mode == access.Unset && old.table.Mode > access.Off:
		err = fmt.Errorf("%s no longer sets the mode, which was %v; if that is intended, write mode: off", s.path, old.table.Mode)
	default:
		content.Revision = old.table.Revision + 1
		next, err = access.TableOf(content)
	}
	if err != nil {
		s.state.Store(&state{old.table, old.digest, err.Error()})
		s.log.Warn("the changed auth.file is not in force; its previous contents are", "err", err)
		return false
	}
	digest := next.Digest()
	if digest == old.digest {
		s.state.Store(&state{old.table, digest, ""})
		if old.failure != "" {
			s.log.Info("auth.file can be read again, and says what is in force")
		}
		return false
	}
	s.state.Store(&state{next, digest, ""})
	if s.Changed != nil {
		s.Changed(old.table, next)
	}
	s.log.Info("the changed auth.file is in force", "roles", len(next.Roles), "tokens", len(next.Tokens), "digest", digest)
	return true
}
