package authfile

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// rig is a source that runs in a bubble.
type rig struct {
	*Source
	path string
	log  *strings.Builder
}

func newRig(t *testing.T, text string) *rig {
	t.Helper()
	r := &rig{path: filepath.Join(t.TempDir(), "auth.yaml"), log: new(strings.Builder)}
	need.OK(t, os.WriteFile(r.path, []byte(text), 0o600))
	r.Source = need.Got(Open(r.path, slog.New(slog.NewTextHandler(r.log, nil))))(t)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); synctest.Wait() })
	go r.Run(ctx)
	return r
}

// awaitChecks lets the time pass within which a change must be in force.
func awaitChecks() {
	time.Sleep(5*time.Second - time.Millisecond)
	synctest.Wait()
}

func twoTokens() string { return "tokens:\n" + tokenLine(accessorA, "") + tokenLine(accessorB, "") }

func TestChangedFileIsInForceWithinFiveSeconds(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path, text string){
		"written anew": func(t *testing.T, path, text string) { need.OK(t, os.WriteFile(path, []byte(text), 0o600)) },
		"renamed": func(t *testing.T, path, text string) {
			need.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
			need.OK(t, os.Rename(path+".new", path))
		},
		"link to another": func(t *testing.T, path, text string) {
			need.OK(t, os.WriteFile(path+".data", []byte(text), 0o600))
			need.OK(t, os.Symlink(path+".data", path+".link"))
			need.OK(t, os.Rename(path+".link", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "tokens:\n"+tokenLine(accessorA, ""))
				revision := r.Table().Revision
				replace(t, r.path, twoTokens())
				awaitChecks()
				expect.That(t, r.Table().Holder(accessorB) != nil && r.Table().Revision > revision && r.Failure() == "", "got revision %d, %q, want both tokens", r.Table().Revision, r.Failure())
				revision = r.Table().Revision
				replace(t, r.path+"x", "") // another file
				awaitChecks()
				expect.Equal(t, r.Table().Revision, revision, "of a file that stays as it is: got")
			})
		})
	}
}

func TestFileThatCannotBeReadLeavesInForceWhatWasThere(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, path string)
		want  string
	}{
		{"no YAML", func(t *testing.T, path string) { need.OK(t, os.WriteFile(path, []byte("tokens: [\n"), 0o600)) }, "auth.yaml: "},
		{"mistake", func(t *testing.T, path string) { need.OK(t, os.WriteFile(path, []byte("tokens: a\n"), 0o600)) }, "auth.yaml:1: tokens must be a list"},
		{"empty", func(t *testing.T, path string) { need.OK(t, os.Truncate(path, 0)) }, "auth.yaml is empty"},
		{"a line that is cut off", func(t *testing.T, path string) { need.OK(t, os.Truncate(path, int64(len(twoTokens())-3))) }, "is cut off"},
		{"no tokens", func(t *testing.T, path string) { need.OK(t, os.WriteFile(path, []byte("mode: on\n"), 0o600)) }, "no tokens any more, and had 2"},
		{"mode", func(t *testing.T, path string) { need.OK(t, os.Chmod(path, 0o644)) }, "mode 0644"},
		{"removed", func(t *testing.T, path string) { need.OK(t, os.Remove(path)) }, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, twoTokens())
				before := r.Table()
				c.spoil(t, r.path)
				for range 3 {
					awaitChecks()
				}
				expect.That(t, r.Table() == before && strings.Contains(r.Failure(), c.want), "got %q, want the old table and %q", r.Failure(), c.want)
				expect.Equal(t, strings.Count(r.log.String(), "level=WARN"), 1, "warnings:")

				_ = os.Remove(r.path)
				need.OK(t, os.WriteFile(r.path, []byte(twoTokens()+"# again\n"), 0o600))
				awaitChecks()
				expect.That(t, r.Table() == before && r.Failure() == "", "got %q, want it to be good again", r.Failure())
			})
		})
	}
}

// A file that is written in two steps is half of one in between.
func TestFileIsNotJudgedBeforeItIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTokens())
		before := r.Table()
		time.Sleep(checkInterval - time.Millisecond)
		need.OK(t, os.WriteFile(r.path, []byte("tokens:\n"+tokenLine(accessorA, "")), 0o600))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		need.OK(t, os.WriteFile(r.path, []byte(twoTokens()+"# whole\n"), 0o600))
		awaitChecks()
		expect.That(t, r.Table() == before && r.log.Len() == 0, "half of the file was in force: %s", r.log)
	})
}

func TestReloadReadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTokens())
		need.OK(t, os.WriteFile(r.path, []byte("tokens:\n"+tokenLine(accessorB, "")), 0o600))
		expect.That(t, r.Reload() && r.Table().Holder(accessorA) == nil, "the token is still there")
		expect.That(t, !r.Reload(), "it changed again")
	})
}

// TestModeDoesNotVanish by the way: who leaves it out may have cut it off, and all that the node asks for would be asked no more.
func TestModeDoesNotVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "mode: on\n"+twoTokens())
		need.OK(t, os.WriteFile(r.path, []byte(twoTokens()), 0o600))
		expect.That(t, !r.Reload() && r.Table().Mode == access.On && strings.Contains(r.Failure(), "write mode: off"), "mode %v, %q", r.Table().Mode, r.Failure())
		need.OK(t, os.WriteFile(r.path, []byte("mode: off\n"+twoTokens()), 0o600))
		expect.That(t, r.Reload() && r.Table().Mode == access.Off, "mode %v, %q", r.Table().Mode, r.Failure())
	})
}

func TestOpenRefusesABadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	need.OK(t, os.WriteFile(path, []byte("tokens: a\n"), 0o600))
	_, err := Open(path, slog.New(slog.DiscardHandler))
	expect.That(t, err != nil && strings.Contains(err.Error(), "auth.yaml:1: "), "got %v", err)
}
